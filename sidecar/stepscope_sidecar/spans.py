"""
OTLP trace requests: read into rows, and built for the sidecar's own spans.

Pure. Leaves limits and compression to ``intake.py`` and keeping to ``store.py``.
"""

import base64
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import orjson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from stepscope import names
from stepscope_sidecar.rows import ROLE_PATTERN, OwnSpan, SpanRow, Value
from stepscope_sidecar.steps import Steps

SCOPE = "stepscope.sidecar"
"""Instrumentation scope of the spans that the sidecar makes."""

CODES = {Status.STATUS_CODE_UNSET: "unset", Status.STATUS_CODE_OK: "ok", Status.STATUS_CODE_ERROR: "error"}
"""What a status is called in JSON; a code from the future reads as unset."""

VERSION, STEP, ROLE, RANK = (str(name) for name in (names.PARAM_VERSION, names.STEP, names.ROLE, names.RANK))
"""Plain strings: JSON's encoder takes no subclass of it for a key."""

SIMPLE = frozenset({"string_value", "int_value", "bool_value", "double_value"})
"""Kinds of attribute that JSON has too."""

MAX_NUMBER = 2**53
"""Ranks, steps and versions are below: no run has more, and JSON's readers know whole numbers up to there."""

DIGITS = 16
"""Of the largest one."""

LATEST = 2**63 - 1
"""OTLP's times are unsigned 64-bit numbers, SQLite's integers are signed."""


def count(request: ExportTraceServiceRequest) -> int:
    """
    How many spans ``request`` holds.
    """
    return sum(len(scoped.spans) for resource in request.resource_spans for scoped in resource.scope_spans)


def each(request: ExportTraceServiceRequest) -> Iterator[tuple[Resource, Span]]:
    """
    All spans of ``request`` in order, with their resources.
    """
    for resource in request.resource_spans:
        for scoped in resource.scope_spans:
            for span in scoped.spans:
                yield resource.resource, span


def decode(request: ExportTraceServiceRequest, *, steps: Steps, start: int = 0) -> Iterator[SpanRow]:
    """
    The rows of ``request`` from span ``start`` on; spans of others get the step of their trace.
    """
    return as_rows(itertools.islice(each(request), start, None), steps=steps)


def as_rows(pairs: Iterable[tuple[Resource, Span]], *, steps: Steps) -> Iterator[SpanRow]:
    """
    The rows of some spans with their resources; spans of others get the step of their trace.
    """
    last, data = None, dict[str, Value]()
    for resource, span in pairs:
        if resource is not last:
            last, data = resource, flat(resource.attributes)
        yield _row(span, data, steps)


def flat(attributes: Iterable[KeyValue]) -> dict[str, Value]:
    """
    Attributes as a flat object with native JSON types.
    """
    return {item.key: _value(item.value) for item in attributes}


def build(spans: Iterable[OwnSpan], *, resource: Mapping[str, str | int]) -> bytes:
    """
    The OTLP request that carries the sidecar's own ``spans``.
    """
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=[_pair(key, value) for key, value in resource.items()]),
                scope_spans=[ScopeSpans(scope=InstrumentationScope(name=SCOPE), spans=[_own(span) for span in spans])],
            )
        ]
    ).SerializeToString()


def own_attributes(step: int, param_version: int) -> list[KeyValue]:
    """
    What a span of others gets on the way through.
    """
    return [_pair(names.PARAM_VERSION, param_version), _pair(names.STEP, step)]


def _row(span: Span, resource: dict[str, Value], steps: Steps) -> SpanRow:
    attributes = {item.key: _value(item.value) for item in span.attributes}
    step = attributes.get(STEP)
    version = attributes.get(VERSION)
    if (number := _number(step)) is not None:
        steps.seen(number)
    elif version is None and (place := steps.place(span.trace_id[:8])):
        step, version = place
        attributes[VERSION], attributes[STEP] = version, step
    for key in (ROLE, RANK):
        if key not in attributes and key in resource:
            attributes[key] = resource[key]
    if isinstance(told := attributes.get(RANK), str) and told.isdecimal() and len(told) <= DIGITS:
        # A program of others is told its resource by an environment variable, which has no numbers.
        attributes[RANK] = int(told)
    role, rank = attributes.get(ROLE), attributes.get(RANK)
    return SpanRow(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        name=span.name,
        kind=span.kind,
        start_unix_ns=min(span.start_time_unix_nano, LATEST),
        end_unix_ns=min(span.end_time_unix_nano, LATEST),
        attributes=attributes,
        links=[
            {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), "attributes": flat(link.attributes)}
            for link in span.links
        ],
        events=[
            {"name": event.name, "unix_ns": event.time_unix_nano, "attributes": flat(event.attributes)}
            for event in span.events
        ],
        status={"code": CODES.get(span.status.code, "unset"), "message": span.status.message},
        resource=resource,
        role=role if isinstance(role, str) and ROLE_PATTERN.fullmatch(role) else None,
        rank=_number(rank),
        step=_number(step),
        param_version=_number(version),
    )


def _number(value: Value) -> int | None:
    """
    ``value`` as a rank, a step or a version; None if it is none.
    """
    return value if type(value) is int and abs(value) < MAX_NUMBER else None


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    if kind in SIMPLE:
        return cast("Value", getattr(value, kind))
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return cast("Value", flat(value.kvlist_value.values))
    return base64.b64encode(value.bytes_value).decode() if kind == "bytes_value" else None


def _pair(key: str, value: str | int | float | bool) -> KeyValue:
    if isinstance(value, bool):
        return KeyValue(key=key, value=AnyValue(bool_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    if isinstance(value, float):
        return KeyValue(key=key, value=AnyValue(double_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _own(span: OwnSpan) -> Span:
    return Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_span_id),
        name=span.name,
        kind=Span.SpanKind.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start_unix_ns,
        end_time_unix_nano=span.end_unix_ns,
        attributes=[_pair(key, value) for key, value in span.attributes.items()],
        links=[Span.Link(trace_id=bytes.fromhex(trace), span_id=bytes.fromhex(link)) for trace, link in span.links],
        status=Status(code=Status.StatusCode.STATUS_CODE_ERROR, message=span.error) if span.error else None,
    )


def to_text(value: object) -> str:
    """
    JSON text for a column.
    """
    return orjson.dumps(value).decode()
