"""
The receivers and the forwarder over real sockets, with the exporters that users have.
"""

import http.client
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Link, StatusCode
from opentelemetry.trace import Status as SpanStatus

from stepscope_sidecar.inbox import DROPPED, FORWARDED, RECEIVED
from stepscope_sidecar.intake import MAX_SPANS
from tests.integration.receiving import Receiver, receiving
from tests.unit.sidecar.bodies import ATTEMPT, batch, body, foreign, nested, span
from tests.unit.sidecar.stored import WAIT, holds

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Receiver]:
    """
    A receiver without an upstream.
    """
    with receiving(tmp_path / "stepscope.db", attempt=ATTEMPT) as found:
        yield found


def post(url: str, content: bytes, **headers: str) -> tuple[int, bytes]:
    """
    Status and body of the answer to one request.
    """
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=WAIT)
    try:
        connection.request(
            "POST", "/v1/traces", body=content, headers={"Content-Type": "application/x-protobuf", **headers}
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def exporter(ours: Receiver, protocol: str) -> SpanExporter:
    """
    The OpenTelemetry exporter for ``protocol``, with gzip.
    """
    if protocol == "http":
        return HttpExporter(endpoint=f"{ours.http}/v1/traces", compression=Compression.Gzip)
    return GrpcExporter(endpoint=ours.grpc, insecure=True, compression=grpc.Compression.Gzip)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_opentelemetry_exporters_are_understood(ours: Receiver, protocol: str) -> None:
    """
    Ids, parent, attributes of each type, links, events, status and resource arrive as they were.
    """
    provider = TracerProvider(resource=Resource.create({"service.name": "user", "rl.rank": 3}))
    provider.add_span_processor(BatchSpanProcessor(exporter(ours, protocol)))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer") as outer:
        inner = tracer.start_span(
            "inner",
            attributes={"i": 2**53 + 1, "f": 0.5, "b": True, "s": "é", "l": [1, 2]},
            links=[Link(outer.get_span_context(), {"why": "test"})],
        )
        inner.add_event("happened", {"n": 1})
        inner.set_status(SpanStatus(StatusCode.ERROR, "broken"))
        inner.end()
    provider.shutdown()
    child, parent = sorted(ours.spans(), key=lambda row: row.name)

    assert ("inner", "outer") == (child.name, parent.name)
    assert (child.trace_id, child.parent_span_id) == (parent.trace_id, parent.span_id)
    assert "" == parent.parent_span_id
    assert {"i": 2**53 + 1, "f": 0.5, "b": True, "s": "é", "l": [1, 2], "rl.rank": 3} == child.attributes
    assert [{"trace_id": parent.trace_id, "span_id": parent.span_id, "attributes": {"why": "test"}}] == child.links
    assert {"code": "error", "message": "broken"} == child.status
    assert "user" == child.resource["service.name"]
    assert ["happened"] == [event["name"] for event in child.events if isinstance(event, dict)]


def test_grpc_refuses_as_http_does(ours: Receiver) -> None:
    """
    Not protobuf is INVALID_ARGUMENT; over the limit, a bomb or of too many spans, RESOURCE_EXHAUSTED; other services
    UNIMPLEMENTED.
    """
    many = nested(1, 1, MAX_SPANS)
    with grpc.insecure_channel(ours.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        export = channel.unary_unary(EXPORT, bytes, bytes)
        metrics = channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", bytes, bytes)
        codes = []
        for call, content in ((export, b"\xff\xff"), (export, bytes(64 * 1024**2)), (export, many), (metrics, b"")):
            with pytest.raises(grpc.RpcError) as refused:
                call(content, compression=grpc.Compression.Gzip, timeout=WAIT)
            codes.append(refused.value.code())

    assert [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
    ] == codes


def test_grpc_says_when_to_come_back(ours: Receiver) -> None:
    """
    A full disk is UNAVAILABLE with a RetryInfo, which exporters honour.
    """
    ours.store.submit(lambda connection: connection.execute("PRAGMA max_page_count=1").fetchone()).result(WAIT)
    with grpc.insecure_channel(ours.grpc) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(EXPORT, bytes, bytes)(batch(2000), timeout=WAIT)
    trailers: list[tuple[str, bytes]] = list(refused.value.trailing_metadata())  # type: ignore[arg-type]
    details = dict(trailers)["grpc-status-details-bin"]

    assert grpc.StatusCode.UNAVAILABLE == refused.value.code()
    assert "RetryInfo" in Status.FromString(details).details[0].type_url


def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """
    413 although the sender has not finished; the receiver goes on.
    """
    with receiving(tmp_path / "stepscope.db", attempt=ATTEMPT, max_bytes=10_000) as ours:
        status, answer = post(ours.http, batch(200))

        assert 413 == status
        assert "limit" in Status.FromString(answer).message
        assert (200, b"") == post(ours.http, batch(2))


def test_spans_pass_through_to_an_upstream(tmp_path: Path) -> None:
    """
    What the first receives the second gets, spans of others with their step; counted on both sides.
    """
    with (
        receiving(tmp_path / "second.db", attempt="other") as second,
        receiving(tmp_path / "first.db", attempt=ATTEMPT, upstream=second.http) as first,
    ):
        for content in (batch(100), body(foreign(500, step=2))):
            assert 200 == post(first.http, content)[0]
        assert first.forwarder is not None
        assert 0 == first.forwarder.flush(timeout=WAIT)

        assert first.spans() == second.spans()
        assert [2] == [row.step for row in second.spans() if row.name == "llm_request"]
        assert 101.0 == first.totals().value(FORWARDED) == second.totals().value(RECEIVED)


def test_what_an_upstream_missed_it_gets_when_it_is_back(tmp_path: Path) -> None:
    """
    Spans received while the upstream is away, and before a restart of ours, arrive afterwards.
    """
    with receiving(tmp_path / "first.db", attempt=ATTEMPT, upstream="http://127.0.0.1:9") as first:
        assert 200 == post(first.http, batch(50))[0]
        assert first.forwarder is not None
        assert 50 == first.forwarder.flush(timeout=0.2)
    with (
        receiving(tmp_path / "second.db", attempt="other") as second,
        receiving(tmp_path / "first.db", attempt=ATTEMPT, upstream=second.http) as first,
    ):
        assert first.forwarder is not None
        assert 0 == first.forwarder.flush(timeout=WAIT)

        assert 50 == len(second.spans())


def test_a_sidecar_that_is_its_own_upstream_does_not_go_round(tmp_path: Path) -> None:
    """
    The loop is refused once, counted, and every span is kept once.
    """
    with receiving(tmp_path / "stepscope.db", attempt=ATTEMPT, upstream="http://127.0.0.1:9") as ours:
        assert ours.forwarder is not None
        ours.forwarder.transport._url = f"{ours.http}/v1/traces"  # type: ignore[attr-defined]
        assert 200 == post(ours.http, body(span(1)))[0]

        assert holds(lambda: ours.totals().value(DROPPED, reason="refused") == 1)
        assert 1 == len(ours.spans())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """
    A file system of 2 MB.
    """
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_refuses_and_recovers(small_disk: Path) -> None:
    """
    On a real file system without space: 503, nothing lost that was acknowledged, and it goes on when there is space.
    """
    ballast = small_disk / "ballast"
    with receiving(small_disk / "stepscope.db", attempt=ATTEMPT) as ours:
        assert 200 == post(ours.http, batch(10))[0]
        ballast.write_bytes(b"")
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        kept, status = 10, 200
        while status == 200:
            status, answer = post(ours.http, batch(100, first=kept + 1))
            kept += 100 if status == 200 else 0

        assert 503 == status
        assert "no space left" in Status.FromString(answer).message
        assert kept == len(ours.spans())
        ballast.unlink()
        assert 200 == post(ours.http, batch(100, first=kept + 1))[0]
        assert kept + 100 == len(ours.spans())
