"""
How one request of spans gets to the upstream, and what is said there: OTLP over HTTP.

Leaves what is sent, and what follows from an answer, to ``forward.py``.
"""

import gzip
from dataclasses import dataclass
from typing import Protocol

import httpx
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from stepscope_sidecar import chain
from stepscope_sidecar.chain import Chain
from stepscope_sidecar.otlp import PROTOBUF, VIA
from stepscope_sidecar.upstream import Upstream


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """
    What the upstream said; status 0 when it could not be reached.
    """

    status: int
    message: str = ""
    retry_after: float | None = None
    rejected: int = 0


class Transport(Protocol):
    """
    Sends one request body.
    """

    def send(self, body: bytes, *, via: Chain) -> Answer:
        """
        Send ``body`` (serialised, not yet compressed), which came by ``via``; never raises for what the network does.
        """

    def close(self) -> None:
        """
        Close connections.
        """


class HttpTransport:
    """
    OTLP over HTTP with protobuf and gzip.
    """

    def __init__(self, upstream: Upstream) -> None:
        """
        Send to ``upstream``.
        """
        self._error = (httpx.HTTPError, httpx.InvalidURL, ValueError, OverflowError)
        self._gzip = upstream.gzip
        headers = {"content-type": PROTOBUF, **upstream.headers}
        if self._gzip:
            headers["content-encoding"] = "gzip"
        self._url = upstream.url
        self._client = httpx.Client(
            headers=headers, timeout=upstream.timeout, verify=upstream.certificate or True, trust_env=True
        )

    def send(self, body: bytes, *, via: Chain) -> Answer:
        """
        POST ``body``.
        """
        content = gzip.compress(body, compresslevel=1) if self._gzip else body
        try:
            response = self._client.post(self._url, content=content, headers={VIA: chain.written(via)} if via else {})
        except self._error as error:
            return Answer(status=0, message=f"{type(error).__name__}: {error}")
        if response.is_success:
            rejected, message = _partial(response.content)
            return Answer(status=response.status_code, rejected=rejected, message=message)
        return Answer(
            status=response.status_code,
            message=response.reason_phrase,
            retry_after=_seconds(response.headers.get("retry-after", "")),
        )

    def close(self) -> None:
        """
        Close connections.
        """
        self._client.close()


def _partial(content: bytes) -> tuple[int, str]:
    try:
        partial = ExportTraceServiceResponse.FromString(content).partial_success
    except DecodeError:
        return 0, ""
    return partial.rejected_spans, partial.error_message


def _seconds(text: str) -> float | None:
    if text.strip().isdigit():
        return float(text)
    return None
