"""
The OTLP/gRPC receiver: the TraceService on grpc.aio, gzip understood.

Keeps the bytes as they came, so it registers a handler of its own instead of the generated one, which would parse
and forget them. Leaves limits and keeping to ``intake.py``.
"""

from collections.abc import Sequence

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from stepscope_sidecar import chain
from stepscope_sidecar.errors import IntakeError
from stepscope_sidecar.intake import Intake
from stepscope_sidecar.otlp import ACCEPTED, VIA

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"

CODES = {code.value[0]: code for code in grpc.StatusCode}


async def serve(intake: Intake, *, address: str) -> tuple[grpc.aio.Server, int]:
    """
    Listen on ``address`` (host:port, port 0 takes a free one); returns the server and its port.

    Raises:
        OSError: the address cannot be bound.
    """
    server = grpc.aio.server(
        options=[
            # gRPC holds this against the decompressed size too, and stops decompressing there.
            ("grpc.max_receive_message_length", intake.max_bytes),
            # A second sidecar must not quietly take over half of the connections.
            ("grpc.so_reuseport", 0),
        ]
    )

    async def export(body: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        metadata = [(str(key), str(value)) for key, value in context.invocation_metadata() or ()]
        via = chain.read(value for key, value in metadata if key == VIA)
        try:
            intake.admit(authorization=dict(metadata).get("authorization", ""), via=via)
            await intake.take(body, via=via)
        except IntakeError as error:
            await context.abort(CODES[error.code], str(error), trailing_metadata=_details(error))
        return ACCEPTED

    handler = grpc.method_handlers_generic_handler(SERVICE, {"Export": grpc.unary_unary_rpc_method_handler(export)})
    server.add_generic_rpc_handlers((handler,))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    await server.start()
    return server, port


def _details(error: IntakeError) -> Sequence[tuple[str, bytes]]:
    if error.retry_after is None:
        return ()
    info = AnyMessage()
    info.Pack(RetryInfo(retry_delay=Duration(seconds=int(error.retry_after))))
    status = Status(code=error.code, message=str(error), details=[info])
    return (("grpc-status-details-bin", status.SerializeToString()),)
