"""
Spans as Jaeger's query API says them in JSON.

Pure. Follows what Jaeger itself makes of OTLP: a parent is a reference ``CHILD_OF``, a link one ``FOLLOWS_FROM``; kind
and status are tags; lists and objects are JSON text; whole numbers beyond what JavaScript can count are text. What
Jaeger has no place for is left out: attributes of links. Times are whole microseconds, as Jaeger has them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from stepscope_sidecar.rows import SpanRow, Value

Tag = dict[str, Value]
"""A key, the name of a type, and a value of it."""

KINDS = ("", "internal", "server", "client", "producer", "consumer")
"""Kinds of span by their number in OTLP."""

UNKNOWN_SERVICE = "unknown_service"
"""What a resource without ``service.name`` is called."""

MOST_EXACT = 2**53 - 1
"""The largest whole number that JavaScript counts exactly."""

DERIVED = frozenset({"span.kind", "error", "otel.status_code", "otel.status_description"})
"""Tags that are no attribute of the span."""


def trace(rows: Sequence[SpanRow], *, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """
    One trace of all ``rows``, which share a trace id; there is at least one.
    """
    processes: dict[bytes, str] = {}
    described: dict[str, Any] = {}
    spans = []
    for row in rows:
        key = orjson.dumps(row.resource, option=orjson.OPT_SORT_KEYS)
        name = processes.setdefault(key, f"p{len(processes) + 1}")
        if name not in described:
            described[name] = {"serviceName": service(row.resource), "tags": process_tags(row.resource)}
        spans.append(_span(row, process=name))
    return {"traceID": rows[0].trace_id, "spans": spans, "processes": described, "warnings": list(warnings) or None}


def answer(data: Sequence[object]) -> dict[str, Any]:
    """
    What every endpoint wraps its data in.
    """
    return {"data": data, "total": len(data), "limit": 0, "offset": 0, "errors": None}


def failure(message: str, status: int) -> dict[str, Any]:
    """
    The same, of an error.
    """
    return {"data": None, "total": 0, "limit": 0, "offset": 0, "errors": [{"code": status, "msg": message}]}


def service(resource: Mapping[str, Value]) -> str:
    """
    The name of the service that a resource is of.
    """
    found = resource.get("service.name")
    return found if isinstance(found, str) and found else UNKNOWN_SERVICE


def kind(number: int) -> str:
    """
    What a kind of span is called; one from the future, like none, has no name.
    """
    return KINDS[number] if 0 <= number < len(KINDS) else ""


def tags(row: SpanRow) -> list[Tag]:
    """
    The tags of a span: its attributes, then its kind and its status.
    """
    found = [tag(key, value) for key, value in row.attributes.items()]
    if named := kind(row.kind):
        found.append(tag("span.kind", named))
    code, message = row.status.get("code"), row.status.get("message")
    if code == "error":
        found += [tag("otel.status_code", "ERROR"), tag("error", True)]
    elif code == "ok":
        found.append(tag("otel.status_code", "OK"))
    if message:
        found.append(tag("otel.status_description", message))
    return found


def process_tags(resource: Mapping[str, Value]) -> list[Tag]:
    """
    The tags of a process: its resource, less the name of the service.
    """
    return [tag(key, value) for key, value in resource.items() if key != "service.name"]


def logs(row: SpanRow) -> list[dict[str, Any]]:
    """
    The events of a span.
    """
    return [
        {
            "timestamp": _whole(event.get("unix_ns")) // 1000,
            "fields": [tag("event", event.get("name")), *_fields(event.get("attributes"))],
        }
        for event in row.events
        if isinstance(event, dict)
    ]


def tag(key: str, value: Value) -> Tag:
    """
    One tag.
    """
    named, shown = _typed(value)
    return {"key": key, "type": named, "value": shown}


def _typed(value: Value) -> tuple[str, Value]:
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return "int64", value if -MOST_EXACT <= value <= MOST_EXACT else str(value)
    if isinstance(value, float):
        return "float64", value
    if isinstance(value, (list, dict)):
        return "string", orjson.dumps(value).decode()
    return "string", value or ""


def _span(row: SpanRow, *, process: str) -> dict[str, Any]:
    return {
        "traceID": row.trace_id,
        "spanID": row.span_id,
        "operationName": row.name,
        "references": list(_references(row)),
        "startTime": row.start_unix_ns // 1000,
        "duration": max(0, row.end_unix_ns - row.start_unix_ns) // 1000,
        "tags": tags(row),
        "logs": logs(row),
        "processID": process,
        "warnings": None,
    }


def _references(row: SpanRow) -> Iterable[dict[str, Value]]:
    if row.parent_span_id:
        yield {"refType": "CHILD_OF", "traceID": row.trace_id, "spanID": row.parent_span_id}
    for link in row.links:
        if isinstance(link, dict):
            yield {"refType": "FOLLOWS_FROM", "traceID": link.get("trace_id"), "spanID": link.get("span_id")}


def _fields(attributes: Value) -> list[Tag]:
    return [tag(key, value) for key, value in attributes.items()] if isinstance(attributes, dict) else []


def _whole(value: Value) -> int:
    return value if isinstance(value, int) else 0
