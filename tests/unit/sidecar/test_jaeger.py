"""
Jaeger's query API over a store: what comes back is what is in it, in the shape that Jaeger's clients decode.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from starlette.applications import Starlette

from stepscope_sidecar.jaeger import search
from stepscope_sidecar.jaeger.routes import AT_ONCE, routes
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT, BEGAN, body, foreign, span
from tests.unit.sidecar.calling import Caller
from tests.unit.sidecar.jaegers import CALLS, OPERATION, TRACE, conforms
from tests.unit.sidecar.stored import WAIT, holds

STEP_1 = span(1, step=1).trace_id
STEP_2 = span(1, step=2).trace_id


def ask(path: Path, *, seconds: float = 30.0) -> Caller:
    """
    A client of the store at ``path``.
    """
    return Caller(Starlette(routes=routes(path, seconds=seconds)), host="127.0.0.1")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """
    A store with two steps of two services, being written to.
    """
    path = tmp_path / "s.db"
    store = Store.open(path, run="demo", attempt=ATTEMPT)
    linked = span(3, step=2, name="rollout.generate", links=((STEP_1, f"{1:016x}"),))
    try:
        store.append(body(span(1, name="train.update_actor"), span(2, name="weights.publish", seconds=2.0)), 2)
        store.append(store.encode([linked, foreign(9)]), 2).result(WAIT)
        yield path
    finally:
        store.close()


def test_services_and_their_operations(path: Path) -> None:
    """
    As lists of names, and as names with kinds; a kind can be asked for.
    """
    caller = ask(path)
    services = caller.get("/api/services").json()
    names = caller.get("/api/services/stepscope-sidecar/operations").json()
    operations = caller.get("/api/operations?service=tests").json()

    conforms(services, {"type": "string"})
    assert (["stepscope-sidecar", "tests"], 2) == (services["data"], services["total"])
    conforms(names, {"type": "string"})
    assert ["llm_request", "rollout.generate"] == names["data"]
    conforms(operations, OPERATION)
    assert ["train.update_actor", "weights.publish"] == [item["name"] for item in operations["data"]]
    assert [] == caller.get("/api/operations?service=tests&spanKind=server").json()["data"]
    assert [] == caller.get("/api/services/none/operations").json()["data"]
    assert 400 == caller.get("/api/operations").status_code


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("service=tests", [STEP_1]),
        ("service=stepscope-sidecar", [foreign(9).trace_id, STEP_2]),
        ("service=stepscope-sidecar&limit=1", [foreign(9).trace_id]),
        ("service=stepscope-sidecar&operation=rollout.generate", [STEP_2]),
        ('service=stepscope-sidecar&tags={"rl.step":"2"}', [STEP_2]),
        ("service=tests&minDuration=1s", [STEP_1]),
        ("service=tests&minDuration=3s", []),
        (f"service=tests&start={BEGAN // 1000 - 1}&end={BEGAN // 1000 + 1}", [STEP_1]),
        (f"service=tests&end={BEGAN // 1000 - 1}", []),
        ("service=tests&lookback=1h", []),
        (f"traceID={STEP_2}&traceID=ab&traceID={STEP_1.upper()}", [STEP_2, STEP_1]),
        ("service=nobody", []),
    ],
)
def test_traces_are_found(path: Path, query: str, expected: list[str]) -> None:
    """
    Those that have a span that fits, received last first, each whole.
    """
    found = ask(path).get(f"/api/traces?{query}").json()

    conforms(found, TRACE)
    assert expected == [trace["traceID"] for trace in found["data"]]


@pytest.mark.parametrize("written", [STEP_1, STEP_1.upper(), STEP_1.lstrip("0")])
def test_a_trace_is_shown_whole(path: Path, written: str) -> None:
    """
    However its id is written.
    """
    found = ask(path).get(f"/api/traces/{written}").json()

    conforms(found, TRACE)
    (trace,) = found["data"]
    assert ["train.update_actor", "weights.publish"] == [item["operationName"] for item in trace["spans"]]
    assert {"tests"} == {item["serviceName"] for item in trace["processes"].values()}


def test_zeros_in_front_of_an_id_may_be_left_out(tmp_path: Path) -> None:
    """
    Jaeger prints ids of 64 bits without the zeros in front.
    """
    store = Store.open(tmp_path / "s.db", attempt=ATTEMPT)
    try:
        request = ExportTraceServiceRequest(
            resource_spans=[
                ResourceSpans(
                    scope_spans=[ScopeSpans(spans=[Span(trace_id=b"\0" * 9 + b"1234567", span_id=b"abcdefgh")])]
                )
            ]
        )
        store.append(request.SerializeToString(), 1).result(WAIT)
        short = (b"1234567".hex(), "00" + b"1234567".hex().upper())
        assert [200, 200] == [ask(tmp_path / "s.db").get(f"/api/traces/{text}").status_code for text in short]
    finally:
        store.close()


@pytest.mark.parametrize(
    ("path_", "status"),
    [
        ("/api/traces/" + "f" * 32, 404),
        ("/api/traces/nonsense", 400),
        ("/api/traces", 400),
        ("/api/traces?service=tests&limit=x", 400),
        ("/api/dependencies?endTs=now", 400),
    ],
)
def test_errors_have_jaegers_shape(path: Path, path_: str, status: int) -> None:
    """
    No data, and a code and a message that the UI shows.
    """
    answer = ask(path).get(path_)
    found = answer.json()

    conforms(found, {})
    assert (status, None) == (answer.status_code, found["data"])
    assert [status] == [item["code"] for item in found["errors"]]


def test_who_calls_whom(tmp_path: Path) -> None:
    """
    Spans with a parent of another service count, in the time that is asked about; others do not.
    """
    path = tmp_path / "s.db"
    store = Store.open(path, attempt=ATTEMPT)
    root = span(1)
    inner = [span(number) for number in (2, 3)]
    try:
        parent = ExportTraceServiceRequest.FromString(body(root))
        parent.resource_spans[0].scope_spans[0].spans[0].span_id = bytes.fromhex(root.parent_span_id)
        parent.resource_spans[0].scope_spans[0].spans[0].parent_span_id = b""
        store.append(parent.SerializeToString(), 1)
        store.append(body(*inner), 2)
        store.append(store.encode([span(4), span(5)]), 2).result(WAIT)
        caller, at = ask(path), BEGAN // 10**6 + 1000
        url = f"/api/dependencies?endTs={at}&lookback=5000"
        expected = [{"parent": "tests", "child": "stepscope-sidecar", "callCount": 2}]

        assert holds(lambda: expected == caller.get(url).json()["data"])
        conforms(caller.get(url).json(), CALLS)
        assert [] == caller.get(f"/api/dependencies?endTs={at - 10_000}&lookback=5000").json()["data"]
        assert [] == caller.get("/api/dependencies").json()["data"]
        assert [] == caller.get(f"{url}&service=nobody").json()["data"]
    finally:
        store.close()


@pytest.mark.parametrize(
    ("value", "text", "fits"),
    [
        (AnyValue(string_value="7"), "7", True),
        (AnyValue(string_value='a "quoted" é'), 'a "quoted" é', True),
        (AnyValue(int_value=7), "7", True),
        (AnyValue(int_value=77), "7", False),
        (AnyValue(double_value=0.5), "0.50", True),
        (AnyValue(double_value=5.0), "5", True),
        (AnyValue(double_value=1e300), "1e+300", True),
        (AnyValue(bool_value=True), "true", True),
        (AnyValue(bool_value=True), "True", False),
        (AnyValue(), "", True),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="a")])), '["a"]', True),
    ],
)
def test_a_tag_is_found_in_the_tables_as_it_is_shown(tmp_path: Path, value: AnyValue, text: str, fits: bool) -> None:
    """
    Whatever its type; what SQLite leaves out would not have fitted.
    """
    path = tmp_path / "s.db"
    store = Store.open(path, attempt=ATTEMPT)
    request = ExportTraceServiceRequest.FromString(body(span(1)))
    request.resource_spans[0].scope_spans[0].spans[0].attributes.append(KeyValue(key='k."x', value=value))
    try:
        store.append(request.SerializeToString(), 1).result(WAIT)
    finally:
        store.close()
    found = ask(path).get("/api/traces", params={"service": "tests", "tags": json.dumps({'k."x': text})}).json()

    assert fits is bool(found["data"])


def test_a_question_is_not_in_the_way_of_spans(path: Path) -> None:
    """
    Spans are acknowledged while somebody looks, who sees the moment that the look began in.
    """
    with open_reader(path) as reader, reader.moment(seconds=30.0) as moment:
        before = search.services(moment)
        store = Store.open(path, run="demo", attempt=ATTEMPT)
        try:
            store.append(body(span(50, step=3)), 1).result(WAIT)
            assert before == search.services(moment)
            assert [] == search.load(moment, [span(50, step=3).trace_id])
        finally:
            store.close()

    assert 200 == ask(path).get(f"/api/traces/{span(50, step=3).trace_id}").status_code


def test_few_answers_are_made_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Who comes while others are at it waits, and is told if that takes too long.
    """
    at_it, go_on = threading.Semaphore(0), threading.Event()

    def slow(place: Path) -> Reader:
        at_it.release()
        assert go_on.wait(WAIT)
        return open_reader(place)

    monkeypatch.setattr("stepscope_sidecar.jaeger.routes.open_reader", slow)
    caller = ask(path, seconds=0.2)
    codes: list[int] = []
    others = [
        threading.Thread(target=lambda: codes.append(caller.get("/api/v3/services").status_code))
        for _ in range(AT_ONCE)
    ]
    for other in others:
        other.start()
    try:
        assert all(at_it.acquire(timeout=WAIT) for _ in others)
        refused = caller.get("/api/services")
    finally:
        go_on.set()
        for other in others:
            other.join(WAIT)

    assert (503, "too many questions") == (refused.status_code, refused.json()["errors"][0]["msg"][:18])
    assert [200] * AT_ONCE == codes


def test_an_answer_is_bounded_and_says_so(path: Path) -> None:
    """
    Of too many spans the first are shown; of traces that are left out the last one tells.
    """
    with open_reader(path) as reader, reader.moment(seconds=30.0) as moment:
        cut = search.load(moment, [STEP_1], limit=1)
        full = search.load(moment, [STEP_1, STEP_2], limit=2)
        whole = search.load(moment, [STEP_1, STEP_2], limit=3)

    assert ["train.update_actor"] == [row.name for row in cut[0].spans]
    assert ("only the first 1 spans of this trace are in the answer",) == cut[0].warnings
    assert ([2], ("the answer is full: 1 more traces fit and are left out",)) == (
        [len(trace.spans) for trace in full],
        full[0].warnings,
    )
    assert [(2, ()), (1, ())] == [(len(trace.spans), trace.warnings) for trace in whole]


def test_a_question_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """
    It is said so, as an error of Jaeger's shape; the next question is answered.
    """
    path = tmp_path / "s.db"
    store = Store.open(path, attempt=ATTEMPT)
    try:
        for first in range(1, 3000, 1000):
            store.append(body(*(span(first + number) for number in range(1000))), 1000).result(WAIT)
    finally:
        store.close()
    answer = ask(path, seconds=0.0).get("/api/traces?service=tests&operation=nothing")

    assert (503, 503) == (answer.status_code, answer.json()["errors"][0]["code"])
    assert "ask for less" in answer.json()["errors"][0]["msg"]
    assert [] == ask(path).get("/api/traces?service=tests&operation=nothing").json()["data"]


def test_a_store_that_is_not_there_says_no_more(tmp_path: Path) -> None:
    """
    The message names no folder of this machine.
    """
    answer = ask(tmp_path / "none.db").get("/api/services")

    assert 503 == answer.status_code
    assert str(tmp_path) not in answer.text


def test_the_newer_ui_has_its_lists(path: Path) -> None:
    """
    Services, operations and traces in short under /api/v3.
    """
    caller = ask(path)
    (found,) = caller.get("/api/v3/trace-summaries?query.serviceName=tests&query.searchDepth=20").json()["summaries"]

    assert {"services": ["stepscope-sidecar", "tests"]} == caller.get("/api/v3/services").json()
    assert {"operations": [{"name": "weights.publish", "spanKind": "internal"}]} == {
        "operations": caller.get("/api/v3/operations?service=tests").json()["operations"][1:]
    }
    assert {
        "traceId": STEP_1,
        "rootServiceName": "tests",
        "rootOperationName": "train.update_actor",
        "minStartTimeUnixNano": str(BEGAN + 1),
        "maxEndTimeUnixNano": str(BEGAN + 2 + 2 * 10**9),
        "spanCount": 2,
        "errorSpanCount": 0,
        "orphanSpanCount": 2,
        "services": [{"name": "tests", "spanCount": 2, "errorSpanCount": 0}],
    } == found
    assert 3 == len(caller.get("/api/v3/trace-summaries").json()["summaries"])
    assert [] == caller.get("/api/v3/trace-summaries?query.startTimeMin=2026-01-01T00:00:00.000Z").json()["summaries"]
    assert {"error": {"httpCode": 400, "message": "'noon' is no time, such as 2026-01-31T12:00:00Z"}} == caller.get(
        "/api/v3/trace-summaries?query.startTimeMax=noon"
    ).json()
