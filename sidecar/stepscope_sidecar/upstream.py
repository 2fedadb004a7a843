"""
Where spans are forwarded to, read from the standard ``OTEL_EXPORTER_OTLP_*`` environment.

Owns what of it is honoured: endpoint, headers, timeout, compression and certificate. The protocol is always HTTP with
protobuf. What values can be used is ``stepscope.endpoint``'s to say, the sending ``forward.py``'s.
"""

import ipaddress
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from stepscope import endpoint
from stepscope.endpoint import PREFIX, TIMEOUT
from stepscope.errors import ConfigurationError
from stepscope.masking import masked

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """
    An OTLP/HTTP endpoint.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    timeout: float = TIMEOUT
    gzip: bool = True
    certificate: str = ""

    def leads_to(self, address: tuple[str, int]) -> bool:
        """
        Whether it is who listens at ``address`` on this machine. Names may be looked up.
        """
        parts, (host, port) = urlsplit(self.url), address
        if not port or port != (parts.port or {"http": 80, "https": 443}[parts.scheme]):
            return False
        theirs, ours = _addresses(parts.hostname or ""), _addresses(host)
        open_to_all = any(ipaddress.ip_address(item).is_unspecified for item in ours)
        return bool(theirs & ours) or (open_to_all and any(map(_is_here, theirs)))

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Upstream | None":
        """
        The upstream that ``environment`` names, or None.

        Raises:
            ConfigurationError: a value cannot be used.
        """
        url = endpoint.url(environment)
        if not url:
            return None
        try:
            httpx.URL(url)
        except httpx.InvalidURL as error:
            # It knows of names that Python's own rules let pass.
            raise ConfigurationError(
                f"{PREFIX}ENDPOINT: {masked(url)!r} cannot be called ({masked(str(error))}); {endpoint.EXAMPLE}"
            ) from None
        if endpoint.get(environment, "PROTOCOL").lower() == "grpc":
            LOG.warning(
                "%sPROTOCOL=grpc: the sidecar forwards as http/protobuf to %s all the same", PREFIX, masked(url)
            )
        return cls(
            url=url,
            headers=endpoint.headers(environment),
            timeout=endpoint.seconds(environment),
            gzip=endpoint.get(environment, "COMPRESSION").lower() != "none",
            certificate=endpoint.certificate(environment),
        )


def _addresses(host: str) -> set[str]:
    try:
        return {str(item[4][0]) for item in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, ValueError):
        # A name that cannot be looked up is nobody's; a name that is none raises UnicodeError.
        return set()


def _is_here(address: str) -> bool:
    # An address is this machine's if something can listen there.
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
