"""
Any span in Jaeger's words: tree, links, attributes, events, status and resource are those of the store.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from starlette.applications import Starlette

from stepscope_sidecar.jaeger import shape
from stepscope_sidecar.jaeger.routes import routes
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import SpanRow
from stepscope_sidecar.spans import count, decode
from stepscope_sidecar.steps import Steps
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT
from tests.unit.sidecar.calling import Caller
from tests.unit.sidecar.jaegers import TRACE, conforms
from tests.unit.sidecar.stored import WAIT

SCALARS = st.one_of(
    st.builds(lambda value: AnyValue(string_value=value), st.text(max_size=20)),
    st.builds(lambda value: AnyValue(bool_value=value), st.booleans()),
    st.builds(lambda value: AnyValue(int_value=value), st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda value: AnyValue(double_value=value), st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(lambda value: AnyValue(bytes_value=value), st.binary(max_size=8)),
    st.just(AnyValue()),
)
KEYS = st.text(min_size=1, max_size=12)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(lambda items: AnyValue(array_value=ArrayValue(values=items)), st.lists(inner, max_size=3)),
        st.builds(
            lambda items: AnyValue(
                kvlist_value=KeyValueList(values=[KeyValue(key=key, value=value) for key, value in items.items()])
            ),
            st.dictionaries(KEYS, inner, max_size=2),
        ),
    ),
    max_leaves=4,
)
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=4).map(
    lambda items: [KeyValue(key=key, value=value) for key, value in items.items()]
)
TIMES = st.integers(0, 2**62)
IDS = st.integers(1, 2**64 - 1).map(lambda number: number.to_bytes(8))


@st.composite
def requests(draw: st.DrawFn) -> ExportTraceServiceRequest:
    """
    Any request: some resources with spans of one trace, parents among them or not.
    """
    ids = draw(st.lists(IDS, min_size=1, max_size=5, unique=True))
    shared = draw(st.binary(min_size=16, max_size=16).filter(any))
    resources = draw(st.lists(ATTRIBUTES, min_size=1, max_size=2))
    spans = [
        Span(
            trace_id=shared,
            span_id=span_id,
            parent_span_id=draw(st.sampled_from([b"", *ids, b"elsewher"])),
            name=draw(st.text(max_size=10)),
            kind=draw(st.sampled_from(Span.SpanKind.values())),
            start_time_unix_nano=draw(TIMES),
            end_time_unix_nano=draw(TIMES),
            attributes=draw(ATTRIBUTES),
            links=[
                Span.Link(trace_id=b"l" * 16, span_id=other, attributes=draw(ATTRIBUTES))
                for other in draw(st.lists(IDS, max_size=2))
            ],
            events=[
                Span.Event(name=draw(st.text(max_size=5)), time_unix_nano=draw(TIMES), attributes=draw(ATTRIBUTES))
                for _ in range(draw(st.integers(0, 2)))
            ],
            status=Status(
                code=draw(st.sampled_from(Status.StatusCode.values())),
                message=draw(st.text(max_size=5)),
            ),
        )
        for span_id in ids
    ]
    cut = draw(st.integers(0, len(spans)))
    parts = [spans[:cut], spans[cut:]] if len(resources) == 2 else [spans]
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(resource=Resource(attributes=resource), scope_spans=[ScopeSpans(spans=part)])
            for resource, part in zip(resources, parts, strict=True)
        ]
    )


def untyped(tag: dict[str, Any], like: object) -> object:
    """
    The value of a tag, read as a client would that knows what it was: ``like`` tells which text is JSON.
    """
    if tag["type"] == "int64":
        return int(tag["value"])
    if isinstance(like, (list, dict)):
        return json.loads(tag["value"])
    return None if like is None and tag["value"] == "" else tag["value"]


def attributes(tags: list[dict[str, Any]], like: dict[str, Any]) -> dict[str, object]:
    """
    The attributes in ``tags``, the first of ``like``'s keys; what follows is derived.
    """
    assert list(like) == [tag["key"] for tag in tags[: len(like)]]
    return {tag["key"]: untyped(tag, like[tag["key"]]) for tag in tags[: len(like)]}


def compare(row: SpanRow, shown: dict[str, Any], processes: dict[str, Any]) -> None:
    """
    Fail unless ``shown`` is ``row``: tree, links, attributes, events, status, kind and resource.
    """
    references = [(item["refType"], item["traceID"], item["spanID"]) for item in shown["references"]]
    parents = [("CHILD_OF", row.trace_id, row.parent_span_id)] if row.parent_span_id else []
    links = [("FOLLOWS_FROM", link["trace_id"], link["span_id"]) for link in row.links]  # type: ignore[index,call-overload]
    derived = {tag["key"]: tag["value"] for tag in shown["tags"][len(row.attributes) :]}
    process = processes[shown["processID"]]
    resource = {key: value for key, value in row.resource.items() if key != "service.name"}

    assert (row.trace_id, row.span_id, row.name) == (shown["traceID"], shown["spanID"], shown["operationName"])
    assert [*parents, *links] == references
    assert row.attributes == attributes(shown["tags"], row.attributes)
    assert resource == attributes(process["tags"], resource)
    assert row.start_unix_ns // 1000 == shown["startTime"]
    assert max(0, row.end_unix_ns - row.start_unix_ns) // 1000 == shown["duration"]
    assert ["", "internal", "server", "client", "producer", "consumer"][row.kind] == derived.get("span.kind", "")
    assert (row.status["code"] == "error") is derived.get("error", False)
    assert row.status["message"] == derived.get("otel.status_description", "")
    assert len(row.events) == len(shown["logs"])
    for event, log in zip(row.events, shown["logs"], strict=True):
        assert isinstance(event, dict)
        told: Any = event["attributes"]
        assert (event["name"] or "") == log["fields"][0]["value"]
        assert told == attributes(log["fields"][1:], told)


def shown(found: dict[str, Any], rows: list[SpanRow]) -> None:
    """
    Fail unless the answer ``found`` is one trace of all ``rows``.
    """
    conforms(found, TRACE)
    (trace,) = found["data"]
    assert [row.span_id for row in rows] == [item["spanID"] for item in trace["spans"]]
    for row, item in zip(rows, trace["spans"], strict=True):
        compare(row, item, trace["processes"])


@settings(max_examples=40, deadline=None)
@given(requests())
def test_a_span_says_the_same_in_jaegers_words(request: ExportTraceServiceRequest) -> None:
    """
    Whatever was received, the trace is in Jaeger's shape and says the same, but for attributes of links.
    """
    rows = list(decode(request, steps=Steps(ATTEMPT)))

    shown(orjson.loads(orjson.dumps(shape.answer([shape.trace(rows)]))), rows)


@settings(max_examples=6, deadline=None)
@given(requests())
def test_every_span_of_the_store_comes_back(request: ExportTraceServiceRequest) -> None:
    """
    By the id of its trace, and in a search for its service.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.db"
        store = Store.open(path, attempt=ATTEMPT)
        try:
            store.append(request.SerializeToString(), count(request)).result(WAIT)
        finally:
            store.close()
        with open_reader(path) as reader:
            rows = reader.spans()
        caller = Caller(Starlette(routes=routes(path)), host="127.0.0.1")
        found = caller.get(f"/api/traces/{rows[0].trace_id}").json()
        by_service = caller.get("/api/traces", params={"service": shape.service(rows[-1].resource)}).json()

    assert len(rows) == count(request)
    shown(found, rows)
    assert found == by_service
