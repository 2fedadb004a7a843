"""
The forwarder: everything in order, at least once; nothing that will never be taken stands in the way.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope.errors import ConfigurationError
from stepscope_sidecar import inbox
from stepscope_sidecar.chain import Chain
from stepscope_sidecar.forward import FIRST_BACKOFF, LONGEST_BACKOFF, SERVER_ERRORS, Forwarder, enriched
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.spans import decode, flat
from stepscope_sidecar.steps import Steps
from stepscope_sidecar.store import Store
from stepscope_sidecar.transport import Answer
from stepscope_sidecar.upstream import Upstream
from tests.unit.sidecar.bodies import ATTEMPT, batch, body, foreign, span
from tests.unit.sidecar.stored import WAIT

OK = Answer(status=200)


class Scripted:
    """
    An upstream that gives the answers it was told, then takes everything.
    """

    def __init__(self, *answers: Answer) -> None:
        """
        Answer with ``answers``, one after the other.
        """
        self.answers = list(answers)
        self.taken: list[str] = []
        self.requests: list[int] = []
        self.closed = False

    def send(self, content: bytes, *, via: Chain = ()) -> Answer:
        """
        Take ``content``, or answer as told.
        """
        rows = list(decode(ExportTraceServiceRequest.FromString(content), steps=Steps(ATTEMPT)))
        self.requests.append(len(rows))
        answer = self.answers.pop(0) if self.answers else OK
        if answer.status == 200:
            self.taken.extend(row.span_id.lstrip("0") for row in rows)
        return answer

    def close(self) -> None:
        """
        Note it.
        """
        self.closed = True


class Poisoned(Scripted):
    """
    An upstream that takes no request that holds span 2.
    """

    def __init__(self, status: int) -> None:
        """
        It answers with ``status``.
        """
        super().__init__()
        self.status = status

    def send(self, content: bytes, *, via: Chain = ()) -> Answer:
        """
        Take ``content`` unless span 2 is in it.
        """
        rows = list(decode(ExportTraceServiceRequest.FromString(content), steps=Steps(ATTEMPT)))
        if any(row.span_id.endswith("02") for row in rows):
            self.answers = [Answer(status=self.status, message="poison")]
        return super().send(content, via=via)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """
    A store with an outbox.
    """
    store = Store.open(tmp_path / "stepscope.db", attempt=ATTEMPT, outbox=True)
    yield store
    store.close()


@pytest.fixture
def reader(store: Store) -> Iterator[Reader]:
    """
    A reader of it.
    """
    with open_reader(store.path) as reader:
        yield reader


def forwarder(store: Store, transport: Scripted) -> Forwarder:
    """
    A forwarder without chance.
    """
    return Forwarder(store=store, transport=transport, clock=lambda: 1, jitter=lambda: 1.0)


def rounds(forwarder: Forwarder, reader: Reader) -> list[float | None]:
    """
    What the rounds say until there is nothing to send.
    """
    said: list[float | None] = []
    while True:
        said.append(forwarder.round(reader))
        if said[-1] is None:
            return said
        assert len(said) < 100


def put(store: Store, *bodies: bytes) -> None:
    """
    Receive requests of one span each.
    """
    for content in bodies:
        store.append(content, 1).result(WAIT)


def test_requests_go_out_together_and_in_order(store: Store, reader: Reader) -> None:
    """
    Small requests share one; all spans arrive in the order they came, and are counted.
    """
    put(store, *(body(span(number)) for number in range(1, 6)))
    upstream = Scripted()

    assert [0.0, None] == rounds(forwarder(store, upstream), reader)
    assert ["1", "2", "3", "4", "5"] == upstream.taken
    assert [5] == upstream.requests
    assert 5.0 == reader.totals().value(inbox.FORWARDED)
    assert 0 == reader.pending()


def test_an_upstream_that_is_away_is_asked_again_ever_more_rarely(store: Store, reader: Reader) -> None:
    """
    The pause doubles up to its bound, nothing is lost, and after success it starts again from the first.
    """
    put(store, body(span(1)))
    upstream = Scripted(*[Answer(status=0)] * 7)
    sender = forwarder(store, upstream)
    said = rounds(sender, reader)

    assert [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 0.0, None] == said
    assert ["1"] == upstream.taken
    assert (FIRST_BACKOFF, LONGEST_BACKOFF) == (1.0, 30.0)
    upstream.answers = [Answer(status=503)]
    put(store, body(span(2)))
    assert [1.0, 0.0, None] == rounds(sender, reader)


def test_retry_after_is_honoured_within_reason(store: Store, reader: Reader) -> None:
    """
    An upstream that names a time is asked then; one that names a day is asked after five minutes.
    """
    put(store, body(span(1)))
    upstream = Scripted(Answer(status=429, retry_after=7.0), Answer(status=503, retry_after=86400.0))

    assert [7.0, 300.0, 0.0, None] == rounds(forwarder(store, upstream), reader)


@pytest.mark.parametrize("status", [400, 413])
def test_a_refused_request_is_set_aside_alone(store: Store, reader: Reader, status: int) -> None:
    """
    Of requests refused together each is tried alone; only the bad one is set aside, counted, and kept to look at.
    """
    put(store, *(body(span(number)) for number in range(1, 5)))
    upstream = Poisoned(status)
    rounds(forwarder(store, upstream), reader)

    assert ["1", "3", "4"] == upstream.taken
    assert 1.0 == reader.totals().value(inbox.DROPPED, reason="refused")
    assert 3.0 == reader.totals().value(inbox.FORWARDED)
    kept = store.submit(lambda connection: connection.execute("SELECT status, message, spans FROM refused").fetchall())
    assert [(status, "poison", 1)] == [tuple(row) for row in kept.result(WAIT)]
    assert 4 == len(reader.spans())


def test_a_request_that_an_upstream_always_fails_on_is_set_aside(store: Store, reader: Reader) -> None:
    """
    500 is tried again a bounded number of times, so that one request cannot block all others for ever.
    """
    put(store, body(span(2)), body(span(3)))
    upstream = Poisoned(500)
    said = rounds(forwarder(store, upstream), reader)

    assert ["3"] == upstream.taken
    assert len(said) <= 2 * SERVER_ERRORS + 3
    assert 1.0 == reader.totals().value(inbox.DROPPED, reason="refused")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_setting_loses_nothing(store: Store, reader: Reader, status: int) -> None:
    """
    A missing credential or a wrong path can be put right; the spans wait.
    """
    put(store, body(span(1)))
    upstream = Scripted(*[Answer(status=status)] * 20)
    rounds(forwarder(store, upstream), reader)

    assert ["1"] == upstream.taken
    assert 0.0 == reader.totals().value(inbox.DROPPED, reason="refused")


def test_rejected_spans_are_counted_and_not_sent_again(store: Store, reader: Reader) -> None:
    """
    A partial success is final: so the specification says.
    """
    store.append(batch(5), 5).result(WAIT)
    upstream = Scripted(Answer(status=200, rejected=2, message="too old"))

    assert [0.0, None] == rounds(forwarder(store, upstream), reader)
    assert 3.0 == reader.totals().value(inbox.FORWARDED)
    assert 2.0 == reader.totals().value(inbox.DROPPED, reason="rejected")


def test_forwarding_goes_on_where_it_was(tmp_path: Path) -> None:
    """
    After a restart only what has not been accepted is sent.
    """
    path = tmp_path / "stepscope.db"
    for number in (1, 2):
        store = Store.open(path, attempt=ATTEMPT, outbox=True)
        put(store, body(span(number)))
        upstream = Scripted()
        with open_reader(path) as reader:
            rounds(forwarder(store, upstream), reader)
        assert [str(number)] == upstream.taken
        store.close()


def test_a_body_waits_for_both_its_readers(store: Store, reader: Reader) -> None:
    """
    A request read into rows stays in the inbox until it was forwarded, and then goes.
    """
    put(store, body(span(1)))
    upstream = Scripted()
    sender = Forwarder(store=store, transport=upstream)
    assert 1 == reader.pending()
    sender.start()
    try:
        assert 0 == sender.flush(timeout=WAIT)
    finally:
        sender.close()
    store.close(timeout=WAIT)

    assert ["1"] == upstream.taken
    assert upstream.closed
    assert sender.failure is None
    assert [] == reader.waiting(parcels=1, limit=1)
    assert 1 == len(reader.spans())


def test_flush_says_what_is_left(store: Store) -> None:
    """
    With an upstream that takes nothing, flush ends in time and names the number of spans.
    """
    store.append(batch(3), 3).result(WAIT)
    sender = forwarder(store, Scripted(*[Answer(status=0)] * 1000))
    sender.start()
    try:
        assert 3 == sender.flush(timeout=0.2)
    finally:
        sender.close()


def test_an_outbox_over_its_bound_gives_up_the_oldest(
    store: Store, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Forwarding of the oldest is given up and counted; the spans stay in the store.
    """
    put(store, *(body(span(number)) for number in range(1, 6)))
    upstream = Scripted(Answer(status=0))
    sender = forwarder(store, upstream)
    sender.outbox_bytes = 2 * len(body(span(1))) + 10
    rounds(sender, reader)

    assert ["4", "5"] == upstream.taken
    assert 3.0 == reader.totals().value(inbox.DROPPED, reason="outbox_full")
    assert 5 == len(reader.spans())
    assert "outbox is full" in caplog.text


def test_an_outbox_keeps_its_bound_where_the_upstream_is_slow(
    store: Store, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It takes all that it is sent, and more has come each time. That is said once, and again when it had been better.
    """
    size = len(body(span(1)))
    upstream = Scripted()
    sender = forwarder(store, upstream)
    sender.outbox_bytes = 4 * size
    for first in (1, 101):
        for number in range(first, first + 60, 20):
            put(store, *(body(span(number + index)) for index in range(20)))
            sender.round(reader)
        rounds(sender, reader)

    assert [number + index for number in (17, 37, 57, 117, 137, 157) for index in range(4)] == [
        int(taken, 16) for taken in upstream.taken
    ]
    assert 96.0 == reader.totals().value(inbox.DROPPED, reason="outbox_full")
    assert 2 == caplog.text.count("outbox is full")


def test_spans_of_others_get_their_step_on_the_way() -> None:
    """
    A span of another program in a trace of ours is given step and version; ours and strangers pass untouched.
    """
    stranger = foreign(3).__class__(
        name="x", trace_id="ee" * 16, span_id="11" * 8, start_unix_ns=1, end_unix_ns=2, attributes={"a": 1}
    )
    steps = Steps(ATTEMPT)
    steps.seen(4)
    sent = ExportTraceServiceRequest.FromString(enriched(body(foreign(1, step=4), stranger), steps=steps))
    first, second = (flat(item.attributes) for item in sent.resource_spans[0].scope_spans[0].spans)

    assert {"param_version": 3, "rl.step": 4} == first
    assert {"a": 1} == second
    ours = body(span(1, step=4))
    assert ours is enriched(ours, steps=steps)


def test_the_standard_environment_is_honoured() -> None:
    """
    Base and traces endpoint, headers, timeout (milliseconds, or Python's seconds), compression and certificate.
    """
    base = Upstream.read(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/",
            "OTEL_EXPORTER_OTLP_HEADERS": "Api-Key=a%20b, x = y=z",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
        }
    )
    traces = Upstream.read(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://tempo/in",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "3",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": certifi.where(),
        }
    )

    assert Upstream(url="http://collector:4318/v1/traces", headers={"api-key": "a b", "x": "y=z"}, timeout=2.5) == base
    assert Upstream(url="https://tempo/in", timeout=3.0, gzip=False, certificate=certifi.where()) == traces
    assert Upstream.read({}) is None


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_HEADERS": "no-value"},
    ],
)
def test_a_bad_environment_is_an_error_at_start(environment: dict[str, str]) -> None:
    """
    The message names the variable.
    """
    with pytest.raises(ConfigurationError, match="OTEL_EXPORTER_OTLP_"):
        Upstream.read(environment)


def test_a_grpc_upstream_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """
    OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not what will happen, and that is said.
    """
    with caplog.at_level(logging.WARNING):
        Upstream.read({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})

    assert "forwards as http/protobuf" in caplog.text
