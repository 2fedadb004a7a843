"""
The way to the sidecar upstream: how reports get there, and how this node can be reached from there.

Owns the one HTTP client that reports need. What is reported, and when, is ``reporter``'s.
"""

import asyncio
import socket
from urllib.parse import urlsplit

import httpx

from stepscope.hosts import is_loopback
from stepscope_sidecar import report
from stepscope_sidecar.otlp import VIA
from stepscope_sidecar.upstream import Upstream

TRACES = "/v1/traces"
"""What an upstream's address ends in, where OTLP's rule for it was followed."""


MAX_ANSWER = 1024**2
"""Bytes of an answer that are read: an order's steps have 64 K characters, all else is a few hundred bytes."""


class HttpTransport:
    """
    Reports over HTTP, with the headers and the certificate that spans go upstream with.
    """

    def __init__(self, upstream: Upstream, *, via: str) -> None:
        """
        ``via`` names this sidecar, so that one that is its own upstream notices.
        """
        self._url = upstream.url.removesuffix(TRACES) + report.PATH
        self._timeout = upstream.timeout
        self._client = httpx.AsyncClient(
            headers={**upstream.headers, "content-type": "application/json", VIA: via},
            timeout=upstream.timeout,
            verify=upstream.certificate or True,
            follow_redirects=False,
        )

    async def send(self, body: bytes) -> tuple[int, bytes]:
        """
        POST ``body``; the whole answer has to come within the upstream's timeout.
        """
        content = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._client.stream("POST", self._url, content=body) as answer,
            ):
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > MAX_ANSWER:
                        return 0, f"an answer of more than {MAX_ANSWER} bytes".encode()
        except TimeoutError:
            return 0, f"no whole answer within {self._timeout:g} s".encode()
        except Exception as error:  # noqa: BLE001 - a way that fails in whatever manner must not end the sidecar
            return 0, f"{type(error).__name__}: {error}".encode()
        return answer.status_code, bytes(content)

    async def close(self) -> None:
        """
        Close connections.
        """
        await self._client.aclose()


def reachable(url: str, *, bound: str, upstream: Upstream) -> str:
    """
    The address of the pages at ``url`` as the upstream can use it; "" where they are open to this machine alone.

    Blocks while a name is looked up. Nothing is sent: a datagram socket that is connected knows its own end.
    """
    parts, theirs = urlsplit(url), urlsplit(upstream.url)
    try:
        kind, how, protocol, _, place = socket.getaddrinfo(theirs.hostname, theirs.port or 80, type=socket.SOCK_DGRAM)[
            0
        ]
        with socket.socket(kind, how, protocol) as probe:
            probe.connect(place)
            ours = str(probe.getsockname()[0])
    except (OSError, ValueError):
        return ""
    if bound in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared with, not bound
        return f"http://[{ours}]:{parts.port}" if ":" in ours else f"http://{ours}:{parts.port}"
    return url if is_loopback(ours) or not is_loopback(parts.hostname or "") else ""
