"""
Finished spans on their way out, against real HTTP servers on loopback.
"""

import contextlib
import gzip
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stepscope import export
from stepscope.export import Outbox, Target


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
        Whether ``count`` spans come within ten seconds.
        """
        with self.got:
            return self.got.wait_for(lambda: len(self.names) >= count, timeout=10)

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


def test_spans_arrive_in_order_at_the_endpoint_of_the_moment() -> None:
    """
    As protobuf, at the standard path.
    """
    with receiving() as receiver, outbox(lambda: receiver.url) as box:
        for span in finished(3):
            box(span)

        assert receiver.wait(3)

    assert ["0", "1", "2"] == receiver.names
    assert {"/v1/traces"} == set(receiver.paths)
    assert "application/x-protobuf" == receiver.headers[0]["Content-Type"]


def test_more_than_a_batch_goes_in_several_requests() -> None:
    """
    A body stays small however many spans wait.
    """
    spans = finished(1200)
    with receiving() as receiver, outbox(lambda: receiver.url, delay=60.0) as box:
        for span in spans:
            box(span)
        box.shutdown(10.0)

    assert [span.name for span in spans] == receiver.names
    assert 3 <= len(receiver.paths)


def test_spans_wait_for_a_sidecar_that_comes_back_elsewhere() -> None:
    """
    While there is none, and while the address named does not answer.
    """
    with receiving() as gone:
        dead = gone.url
    addresses = [""]
    with receiving() as receiver, outbox(lambda: addresses[0]) as box:
        box(finished(1)[0])
        addresses[0] = dead
        box(finished(2)[1])
        addresses[0] = receiver.url

        assert receiver.wait(2)

    assert ["0", "1"] == receiver.names


@pytest.mark.parametrize("status", sorted(export.RETRYABLE))
def test_a_busy_receiver_is_asked_again(status: int) -> None:
    """
    With the same spans, once each.
    """
    with receiving(answers=[status, status]) as receiver, outbox(lambda: receiver.url) as box:
        box(finished(1)[0])

        assert receiver.wait(1)

    assert ["0"] == receiver.names
    assert 3 == len(receiver.paths)


def test_what_a_receiver_refuses_is_counted_and_the_rest_goes_on() -> None:
    """
    A 400 never becomes right by repeating.
    """
    drops: dict[str, int] = {}
    with receiving(answers=[400]) as receiver, outbox(lambda: receiver.url, drops=drops) as box:
        first, second = finished(2)
        box(first)
        with receiver.got:
            receiver.got.wait_for(lambda: receiver.paths, timeout=10)
        box(second)

        assert receiver.wait(1)

    assert ["1"] == receiver.names
    assert {"rejected": 1} == drops


def test_the_buffer_is_bounded_and_counts_what_it_drops() -> None:
    """
    The oldest are kept: they are the ones that belong to finished steps.
    """
    drops: dict[str, int] = {}
    with outbox(lambda: "", drops=drops, capacity=4, delay=60.0) as box:
        for span in finished(10):
            box(span)
        box.shutdown(5.0)
        box(finished(1)[0])

    assert {"buffer_full": 6, "undelivered_at_exit": 4} == drops


def test_leaving_keeps_its_deadline_with_a_receiver_that_never_answers() -> None:
    """
    The request itself is cut short.
    """
    silent = socket.create_server(("127.0.0.1", 0))
    drops: dict[str, int] = {}
    with outbox(lambda: f"http://127.0.0.1:{silent.getsockname()[1]}", drops=drops, delay=60.0) as box:
        box(finished(1)[0])
        begin = time.monotonic()
        box.shutdown(0.3)
        took = time.monotonic() - begin
    silent.close()

    assert took < 5, "the SDK's own shutdown takes 7 s here"


def test_a_dead_endpoint_costs_nothing_at_exit() -> None:
    """
    A refused connection is no reason to wait.
    """
    with receiving() as gone:
        dead = gone.url
    drops: dict[str, int] = {}
    with outbox(lambda: dead, drops=drops, delay=60.0) as box:
        box(finished(1)[0])
        box.shutdown(60.0)

    assert {"undelivered_at_exit": 1} == drops


def test_without_a_sidecar_spans_go_straight_upstream() -> None:
    """
    With the standard headers and compression.
    """
    with receiving() as receiver:
        target = export.upstream(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
                "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x, a=b",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            }
        )
        with outbox(lambda: "", upstream=target) as box:
            box(finished(1)[0])

            assert receiver.wait(1)

    headers = receiver.headers[0]
    assert ("Bearer x", "b", "gzip") == (headers["authorization"], headers["a"], headers["Content-Encoding"])


def test_with_a_sidecar_nothing_goes_upstream() -> None:
    """
    The sidecar forwards; twice would be double.
    """
    with (
        receiving() as sidecar,
        receiving() as upstream,
        outbox(lambda: sidecar.url, upstream=Target(url=f"{upstream.url}/v1/traces")) as box,
    ):
        box(finished(1)[0])

        assert sidecar.wait(1)

    assert [] == upstream.paths


def test_a_sidecar_gone_at_exit_is_bypassed() -> None:
    """
    The spans that waited for it are not lost where an upstream is configured.
    """
    with receiving() as gone:
        dead = gone.url
    with (
        receiving() as upstream,
        outbox(lambda: dead, upstream=Target(url=f"{upstream.url}/v1/traces"), delay=60.0) as box,
    ):
        box(finished(1)[0])
        box.shutdown(10.0)

    assert ["0"] == upstream.names


@pytest.mark.parametrize(
    ("expected", "environment"),
    [
        (None, {}),
        ("http://a:4318/v1/traces", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318/"}),
        (
            "http://b/x",
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/x"},
        ),
    ],
)
def test_the_upstream_is_read_as_the_specification_says(expected: str | None, environment: dict[str, str]) -> None:
    """
    The base gets the signal's path, the signal's own endpoint is taken as it is.
    """
    target = export.upstream(environment)

    assert expected == (target.url if target else None)


def test_the_standard_pace_is_honoured() -> None:
    """
    Nonsense falls back to ours.
    """
    assert (export.DELAY, export.CAPACITY) == export.pace({})
    assert (0.2, 10) == export.pace({"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_BSP_MAX_QUEUE_SIZE": "10"})
    assert (export.DELAY, export.CAPACITY) == export.pace({"OTEL_BSP_SCHEDULE_DELAY": "soon"})


def test_a_connection_closed_by_the_other_end_is_made_anew() -> None:
    """
    A sidecar restarted on the same port, between two batches.
    """
    first = Receiver()
    with outbox(lambda: first.url) as box:
        one, two = finished(2)
        box(one)
        assert first.wait(1)
        first.close()
        with receiving(port=first.port) as second:
            box(two)

            assert second.wait(1)

    assert (["0"], ["1"]) == (first.names, second.names)


def test_trouble_in_telling_drops_does_not_end_the_export() -> None:
    """
    The thread outlives it.
    """

    def fail(counts: Mapping[str, int]) -> None:
        raise RuntimeError("no agent")

    with receiving(answers=[400]) as receiver:
        box = Outbox(endpoint=lambda: receiver.url, dropped=fail, delay=0.01, retry=0.01)
        first, second = finished(2)
        box(first)
        with receiver.got:
            receiver.got.wait_for(lambda: receiver.paths, timeout=10)
        box(second)
        arrived = receiver.wait(1)
        box.shutdown(5.0)

    assert arrived
