"""
An OTLP receiver on loopback, and an outbox in a hurry that sends to it.
"""

import contextlib
import gzip
import http.server
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stepscope.export import Outbox
from stepscope.poster import Target


def finished(count: int) -> list[ReadableSpan]:
    """
    Spans named by number.
    """
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for number in range(count):
        provider.get_tracer("test").start_span(str(number), attributes={"rl.step": number}).end()
    provider.shutdown()
    return list(exporter.get_finished_spans())


class Receiver:
    """
    An OTLP/HTTP receiver on a port of its own. ``answers`` are the statuses of the next requests; then 200.
    """

    def __init__(self, *, port: int = 0, answers: list[int] | None = None) -> None:
        self.names: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.connections: list[socket.socket] = []
        self.got = threading.Condition()
        pending = answers or []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = pending.pop(0) if pending else 200
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                with receiver.got:
                    receiver.paths.append(self.path)
                    receiver.headers.append(dict(self.headers))
                    if status == 200:
                        request = ExportTraceServiceRequest.FromString(body)
                        receiver.names += [
                            span.name
                            for resource in request.resource_spans
                            for scope in resource.scope_spans
                            for span in scope.spans
                        ]
                    receiver.got.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def setup(self) -> None:
                super().setup()
                receiver.connections.append(self.connection)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
                """
                Quiet.
                """

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def wait(self, count: int) -> bool:
        """
        Whether ``count`` spans come within a minute.
        """
        with self.got:
            return self.got.wait_for(lambda: len(self.names) >= count, timeout=60)

    def close(self) -> None:
        """
        Stop listening.
        """
        self.server.shutdown()
        self.server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)


@contextmanager
def receiving(**options: object) -> Iterator[Receiver]:
    """
    A receiver that is closed afterwards.
    """
    receiver = Receiver(**options)  # type: ignore[arg-type]
    try:
        yield receiver
    finally:
        receiver.close()


@contextmanager
def outbox(
    endpoint: Callable[[], str],
    *,
    upstream: Target | None = None,
    drops: dict[str, int] | None = None,
    **options: float,
) -> Iterator[Outbox]:
    """
    An outbox in a hurry.
    """
    counted = drops if drops is not None else {}

    def dropped(counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            counted[reason] = counted.get(reason, 0) + count

    box = Outbox(
        endpoint=endpoint,
        upstream=upstream,
        dropped=dropped,
        delay=options.get("delay", 0.01),
        retry=options.get("retry", 0.01),
        capacity=int(options.get("capacity", 10_000)),
    )
    try:
        yield box
    finally:
        box.shutdown(5.0)
