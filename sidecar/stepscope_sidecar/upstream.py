"""
Where spans are forwarded to, read from the standard ``OTEL_EXPORTER_OTLP_*`` environment.

Owns what of it is honoured: endpoint, headers, timeout, compression and certificate, each with its ``TRACES`` form
first. The protocol is always HTTP with protobuf. Leaves the sending to ``forward.py``.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from stepscope.errors import ConfigurationError

LOG = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds; what the OpenTelemetry specification says."""

SECONDS_BELOW = 100.0
"""The specification counts the timeout in milliseconds, Python's SDK in seconds; nobody means less than 0.1 s."""

PREFIX = "OTEL_EXPORTER_OTLP_"


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

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Upstream | None":
        """
        The upstream that ``environment`` names, or None.

        Raises:
            ConfigurationError: a value cannot be used.
        """
        url = environment.get(f"{PREFIX}TRACES_ENDPOINT", "").strip()
        if not url:
            base = environment.get(f"{PREFIX}ENDPOINT", "").strip()
            if not base:
                return None
            url = f"{base.rstrip('/')}/v1/traces"

        def get(name: str) -> str:
            return (environment.get(f"{PREFIX}TRACES_{name}") or environment.get(f"{PREFIX}{name}") or "").strip()

        _check(url)
        if get("PROTOCOL").lower() == "grpc":
            LOG.warning("%sPROTOCOL=grpc: the sidecar forwards as http/protobuf to %s all the same", PREFIX, url)
        return cls(
            url=url,
            headers=_headers(get("HEADERS")),
            timeout=_timeout(get("TIMEOUT")),
            gzip=get("COMPRESSION").lower() != "none",
            certificate=get("CERTIFICATE"),
        )


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(
            f"{PREFIX}ENDPOINT: {url!r} is not a URL; for example http://collector:4318 (OTLP over HTTP, not gRPC)"
        )


def _headers(text: str) -> dict[str, str]:
    headers = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise ConfigurationError(f"{PREFIX}HEADERS: {key!r} is not KEY=VALUE; separate pairs by commas")
        headers[unquote(key).strip().lower()] = unquote(value).strip()
    return headers


def _timeout(text: str) -> float:
    if not text:
        return TIMEOUT
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise ConfigurationError(f"{PREFIX}TIMEOUT={text!r} is not a positive number of milliseconds")
    return number if number < SECONDS_BELOW else number / 1000
