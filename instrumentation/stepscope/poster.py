"""
Who takes spans, and how one request gets there: the standard settings, and a connection that is kept.

Leaves what is sent and when to :mod:`stepscope.export`, and what the settings mean to :mod:`stepscope.endpoint`.
"""

import gzip
import http.client
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepscope import endpoint
from stepscope.complaints import complaints

TIMEOUT = 2.0
"""Seconds for one request to a sidecar on this machine; far above its milliseconds, far below a patience."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """
    Where to post: a whole URL, and what goes with it.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    compress: bool = False
    timeout: float = TIMEOUT
    certificate: str | None = None


def upstream(environment: Mapping[str, str]) -> Target | None:
    """
    The receiver that ``OTEL_EXPORTER_OTLP_*`` configures, if it does.

    Raises:
        ConfigurationError: a value cannot be used; ``init()`` has looked before.
    """
    url = endpoint.url(environment)
    if not url:
        return None
    protocol = endpoint.get(environment, "PROTOCOL")
    if protocol not in {"", "http/protobuf"}:
        complaints.warn("protocol", "without a sidecar spans go out as http/protobuf, not %s", protocol)
    return Target(
        url=url,
        headers=endpoint.headers(environment),
        compress=endpoint.get(environment, "COMPRESSION").lower() == "gzip",
        timeout=endpoint.seconds(environment),
        certificate=endpoint.certificate(environment) or None,
    )


class Poster:
    """
    Posts bodies over a connection that is kept. Used by one thread.
    """

    def __init__(self) -> None:
        self._connection: http.client.HTTPConnection | None = None
        self._origin = ""

    def post(self, target: Target, body: bytes, *, timeout: float) -> int:
        """
        The status that ``target`` answers.

        Raises:
            OSError: it cannot be reached, or does not answer in time.
            http.client.HTTPException: it answers something else than HTTP.
        """
        parts = urllib.parse.urlsplit(target.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        kept = self._connection is not None and self._origin == origin
        if not kept:
            self.close()
        headers = {"Content-Type": "application/x-protobuf", **target.headers}
        if target.compress:
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            return self._send(target, parts, path, body, headers, timeout)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # The other end may close a kept connection at any moment; only a fresh one tells that it is gone.
            if not kept or isinstance(error, TimeoutError):
                raise
            try:
                return self._send(target, parts, path, body, headers, timeout)
            except (OSError, http.client.HTTPException):
                self.close()
                raise

    def close(self) -> None:
        """
        Let the connection go.
        """
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self,
        target: Target,
        parts: urllib.parse.SplitResult,
        path: str,
        body: bytes,
        headers: dict[str, str],
        timeout: float,
    ) -> int:
        if self._connection is None:
            if parts.scheme == "https":
                secure = ssl.create_default_context(cafile=target.certificate)
                self._connection = http.client.HTTPSConnection(parts.netloc, timeout=timeout, context=secure)
            else:
                self._connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
            self._origin = f"{parts.scheme}://{parts.netloc}"
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        response.read()
        return response.status
