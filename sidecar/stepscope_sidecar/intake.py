"""
What both OTLP receivers share: bounds on sizes, decompression, the check that a body is OTLP, and keeping it.

Leaves HTTP to ``otlp.py`` and gRPC to ``otlp_grpc.py``. A request counts as taken when the store has committed it.
"""

import asyncio
import hmac
import zlib

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope_sidecar import parts
from stepscope_sidecar.chain import Chain
from stepscope_sidecar.errors import IntakeError, StoreBusyError, StoreError, StoreFullError
from stepscope_sidecar.spans import count
from stepscope_sidecar.store import Store

MAX_BYTES = 16 * 1024**2
"""Of one request, compressed and again decompressed: 100 times a full batch of 512 spans, small against memory."""

MAX_SPANS = 50_000
"""Of one request, its resources and scopes counted too: again 100 times a full batch. Each takes 2 bytes to send, and
100 times that in memory."""

FULL_WAIT = 5.0
"""Seconds until a sender shall try again while the disk is full: somebody has to make room."""

BUSY_WAIT = 1.0
"""Seconds until a sender shall try again while the queue is full: it empties in a fraction of that."""

INVALID_ARGUMENT = 3
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
UNAVAILABLE = 14
UNAUTHENTICATED = 16

ENCODINGS = ("gzip", "deflate", "identity")


class Inflater:
    """
    Takes a body in pieces, decompresses it as it comes, and gives up at the limit: a bomb costs no memory.
    """

    def __init__(self, encoding: str, *, limit: int = MAX_BYTES) -> None:
        """
        ``encoding`` is the value of Content-Encoding; none is identity.

        Raises:
            IntakeError: we cannot decompress that.
        """
        name = encoding.strip().lower() or "identity"
        if name not in ENCODINGS:
            raise IntakeError(
                f"Content-Encoding {encoding!r} is not understood; use one of {', '.join(ENCODINGS)}",
                status=415,
                code=UNIMPLEMENTED,
            )
        self._limit = limit
        self._taken = 0
        self._size = 0
        self._parts: list[bytes] = []
        self._inflate = None if name == "identity" else _decompressor()

    def feed(self, piece: bytes) -> None:
        """
        Take the next piece.

        Raises:
            IntakeError: the body is over the limit, or not compressed as it says.
        """
        self._taken += len(piece)
        if self._taken > self._limit:
            raise _too_large(f"{self._limit} bytes", "")
        if self._inflate is None:
            self._parts.append(piece)
            return
        while piece:
            if self._inflate.eof:  # another member follows, as concatenated gzip files have
                self._inflate = _decompressor()
            try:
                part = self._inflate.decompress(piece, self._limit - self._size + 1)
            except zlib.error as error:
                raise _invalid(f"the body is not compressed as its Content-Encoding says: {error}") from None
            self._size += len(part)
            if self._size > self._limit:
                raise _too_large(f"{self._limit} bytes", " decompressed")
            self._parts.append(part)
            piece = self._inflate.unconsumed_tail or self._inflate.unused_data

    def body(self) -> bytes:
        """
        The whole body.

        Raises:
            IntakeError: the compressed body ends too early.
        """
        if self._inflate is not None and self._taken and not self._inflate.eof:
            raise _invalid("the compressed body is cut off")
        return b"".join(self._parts)


class Intake:
    """
    Takes decompressed bodies into the store. For use on an event loop.
    """

    def __init__(self, store: Store, *, max_bytes: int = MAX_BYTES, token: str = "", instance: str = "") -> None:
        """
        ``token``: what senders must present ("" for none); ``instance``: a name that tells our own forwarder.
        """
        self._store = store
        self.max_bytes = max_bytes
        self.token = token
        self.instance = instance

    async def take(self, body: bytes, *, via: Chain = ()) -> None:
        """
        Check ``body``, which came by ``via``, and return when it is durable.

        Raises:
            IntakeError: it is no OTLP trace request, or it cannot be kept now.
        """
        try:
            if parts.over(body, most=MAX_SPANS):
                raise _too_large(f"{MAX_SPANS} spans, resources and scopes", "")
            spans = count(ExportTraceServiceRequest.FromString(body))
        except (DecodeError, ValueError):
            raise _invalid("the body is not an OTLP ExportTraceServiceRequest in protobuf") from None
        if not spans:
            return
        try:
            await asyncio.wrap_future(self._store.append(body, spans, via))
        except StoreBusyError as error:
            raise IntakeError(str(error), status=429, code=RESOURCE_EXHAUSTED, retry_after=BUSY_WAIT) from error
        except StoreFullError as error:
            raise IntakeError(str(error), status=503, code=UNAVAILABLE, retry_after=FULL_WAIT) from error
        except StoreError as error:
            raise IntakeError(str(error), status=503, code=UNAVAILABLE, retry_after=BUSY_WAIT) from error

    def admit(self, *, authorization: str, via: Chain = ()) -> None:
        """
        Refuse who has no token, and what our own forwarder sends to us. What comes back by others is taken.

        Raises:
            IntakeError: refused.
        """
        if self.token and not _same(authorization, f"Bearer {self.token}"):
            raise IntakeError("a token is needed: Authorization: Bearer TOKEN", status=401, code=UNAUTHENTICATED)
        if self.instance and via[-1:] == (self.instance,):
            raise _invalid("the upstream endpoint (OTEL_EXPORTER_OTLP_*) is this sidecar itself; name another one")


def _decompressor() -> "zlib._Decompress":
    return zlib.decompressobj(wbits=47)  # gzip or zlib, whichever header there is


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _invalid(message: str) -> IntakeError:
    return IntakeError(message, status=400, code=INVALID_ARGUMENT)


def _too_large(limit: str, how: str) -> IntakeError:
    return IntakeError(
        f"the body is over the limit of {limit}{how}; send smaller batches", status=413, code=RESOURCE_EXHAUSTED
    )
