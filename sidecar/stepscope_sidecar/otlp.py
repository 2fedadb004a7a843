"""
The OTLP/HTTP receiver: ``POST /v1/traces`` in protobuf, gzip and deflate understood.

Answers as the OTLP specification says, errors as ``google.rpc.Status`` in protobuf. Leaves limits and keeping to
``intake.py``.
"""

import asyncio
import math
from collections.abc import Sequence

from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from stepscope_sidecar import chain
from stepscope_sidecar.errors import IntakeError
from stepscope_sidecar.intake import ENCODINGS, UNIMPLEMENTED, Inflater, Intake

PROTOBUF = "application/x-protobuf"

VIA = "stepscope-via"
"""Header with the chain of sidecars that spans came through."""

PATIENCE = 30.0
"""Seconds for the body of a request. It comes from this machine in milliseconds, from a slow one in seconds."""

DEADLINE_EXCEEDED = 4

ACCEPTED = ExportTraceServiceResponse().SerializeToString()


def receiver(intake: Intake, *, patience: float = PATIENCE, routes: Sequence[Route] = ()) -> Starlette:
    """
    The ASGI application that takes spans into ``intake``; a body may take ``patience`` seconds to come.

    ``routes`` are served beside.
    """

    async def traces(request: Request) -> Response:
        try:
            via = chain.read(request.headers.getlist(VIA))
            intake.admit(authorization=request.headers.get("authorization", ""), via=via)
            async with asyncio.timeout(patience):
                body = await _body(request, limit=intake.max_bytes)
            await intake.take(body, via=via)
        except TimeoutError:
            message = f"the body did not come within {patience:g} s; nothing of it was taken"
            return _refusal(IntakeError(message, status=408, code=DEADLINE_EXCEEDED))
        except IntakeError as error:
            return _refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        return Response(ACCEPTED, media_type=PROTOBUF)

    async def others(request: Request) -> Response:
        signal = request.url.path.rpartition("/")[2]
        return _refusal(
            IntakeError(
                f"this endpoint takes traces; send {signal} elsewhere (OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT)",
                status=404,
                code=UNIMPLEMENTED,
            )
        )

    return Starlette(
        routes=[
            Route("/v1/traces", traces, methods=["POST"]),
            Route("/v1/metrics", others, methods=["POST"]),
            Route("/v1/logs", others, methods=["POST"]),
            *routes,
        ]
    )


async def _body(request: Request, *, limit: int) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != PROTOBUF:
        raise IntakeError(
            f"Content-Type {kind or 'missing'} is not understood; send {PROTOBUF}"
            " (OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf)",
            status=415,
            code=UNIMPLEMENTED,
        )
    inflater = Inflater(request.headers.get("content-encoding", ""), limit=limit)
    async for piece in request.stream():
        inflater.feed(piece)
    return inflater.body()


def _refusal(error: IntakeError) -> Response:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if error.status == 415:
        headers["Accept-Encoding"] = ", ".join(ENCODINGS)
    if error.status in {401, 408, 413, 415}:
        headers["Connection"] = "close"  # what is left of the body is not read
    status = Status(code=error.code, message=str(error))
    return Response(status.SerializeToString(), status_code=error.status, media_type=PROTOBUF, headers=headers)
