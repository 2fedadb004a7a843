"""
The OTLP/HTTP receiver: ``POST /v1/traces`` in protobuf, gzip and deflate understood.

Answers as the OTLP specification says, errors as ``google.rpc.Status`` in protobuf. Leaves limits and keeping to
``intake.py``.
"""

import math

from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from stepscope_sidecar.errors import IntakeError
from stepscope_sidecar.intake import ENCODINGS, UNIMPLEMENTED, Inflater, Intake

PROTOBUF = "application/x-protobuf"

VIA = "stepscope-via"
"""Header by which a receiver knows requests of its own forwarder."""

ACCEPTED = ExportTraceServiceResponse().SerializeToString()


def receiver(intake: Intake) -> Starlette:
    """
    The ASGI application that takes spans into ``intake``.
    """

    async def traces(request: Request) -> Response:
        try:
            intake.admit(authorization=request.headers.get("authorization", ""), via=request.headers.get(VIA, ""))
            await intake.take(await _body(request, limit=intake.max_bytes))
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
    if error.status in {401, 413, 415}:
        headers["Connection"] = "close"  # what is left of the body is not read
    status = Status(code=error.code, message=str(error))
    return Response(status.SerializeToString(), status_code=error.status, media_type=PROTOBUF, headers=headers)
