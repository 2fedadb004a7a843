"""
Finds services, operations, traces and who calls whom in the store, within bounds of time and number.

Reads one moment of the store. Of a search, the traces whose spans were received last come first: that is an order
the store keeps anyway, so that the newest hundred are found without a look at the rest.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from stepscope import names
from stepscope_sidecar import rows
from stepscope_sidecar.jaeger import shape
from stepscope_sidecar.jaeger.query import Search
from stepscope_sidecar.reader import SPAN_COLUMNS, SPAN_TABLES, Moment
from stepscope_sidecar.rows import SpanRow, Value
from stepscope_sidecar.spans import to_text

MAX_SPANS = 20_000
"""Spans in one answer, about 20 MB of JSON; of a longer trace the first ones are shown, and that is said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """
    The spans of one trace by their start, and what has to be said about them.
    """

    spans: Sequence[SpanRow]
    warnings: tuple[str, ...] = ()


def services(moment: Moment) -> list[str]:
    """
    The services that spans are of, by name.
    """
    found = {shape.service(resource) for resource in _resources(moment).values()}
    return sorted(found | {shape.service(row.resource) for row in moment.unread()})


def operations(moment: Moment, service: str) -> list[tuple[str, str]]:
    """
    Names and kinds of the spans of ``service``, by name; of all services where none is named.
    """
    query = "SELECT DISTINCT name, kind FROM spans WHERE ? OR resource_id IN (SELECT value FROM json_each(?))"
    found = {
        (row["name"], shape.kind(row["kind"]))
        for row in moment.connection.execute(query, (not service, _of_service(moment, service)))
    }
    found |= {
        (row.name, shape.kind(row.kind))
        for row in moment.unread()
        if not service or shape.service(row.resource) == service
    }
    return sorted(found)


def find(moment: Moment, search: Search) -> list[str]:
    """
    The ids of the traces that ``search`` asks for, those received last first.
    """
    if search.trace_ids:
        return list(dict.fromkeys(search.trace_ids))
    found: dict[str, None] = {}
    for trace_id in _fitting(moment, search):
        found[trace_id] = None
        if len(found) >= search.limit:
            break
    return list(found)


def load(moment: Moment, trace_ids: Sequence[str], *, limit: int = MAX_SPANS) -> list[Trace]:
    """
    Those of the traces that there are, with at most ``limit`` spans in all.
    """
    wanted = set(trace_ids)
    unread: dict[str, list[SpanRow]] = {}
    for row in moment.unread():
        if row.trace_id in wanted:
            unread.setdefault(row.trace_id, []).append(row)
    found: list[Trace] = []
    for number, trace_id in enumerate(trace_ids):
        spans = _spans(moment, trace_id, unread.get(trace_id, []), limit=limit + 1)
        if not spans:
            continue
        warnings = []
        if len(spans) > limit:
            warnings.append(f"only the first {limit} spans of this trace are in the answer")
            spans = spans[:limit]
        limit -= len(spans)
        left = len(trace_ids) - number - 1
        if not limit and left:
            warnings.append(f"the answer is full: {left} more traces fit and are left out")
        found.append(Trace(spans=spans, warnings=tuple(warnings)))
        if not limit:
            break
    return found


def dependencies(moment: Moment, *, start_ns: int, end_ns: int) -> Counter[tuple[str, str]]:
    """
    How many spans of a service have a parent of another, by the services of parent and child.

    Counts what is in the tables: a span that was received a moment ago counts in a moment.
    """
    query = (
        "SELECT parent.resource_id AS caller, child.resource_id AS called, count(*) AS calls FROM spans AS child"
        " JOIN spans AS parent ON parent.span_id = child.parent_span_id AND parent.trace_id = child.trace_id"
        " WHERE child.start_unix_ns BETWEEN ? AND ? AND child.parent_span_id != '' GROUP BY caller, called"
    )
    called = {number: shape.service(resource) for number, resource in _resources(moment).items()}
    found: Counter[tuple[str, str]] = Counter()
    for row in moment.connection.execute(query, (start_ns, end_ns)):
        pair = called[row["caller"]], called[row["called"]]
        if pair[0] != pair[1]:
            found[pair] += row["calls"]
    return found


def _fitting(moment: Moment, search: Search) -> Iterator[str]:
    for row in reversed(list(moment.unread())):
        if search.fits(row):
            yield row.trace_id
    where, values = ["1"], dict[str, object]()
    if search.service:
        where.append("resource_id IN (SELECT value FROM json_each(:resources))")
        values["resources"] = _of_service(moment, search.service)
    for column, sign, name, value in (
        ("name", "=", "operation", search.operation or None),
        ("start_unix_ns", ">=", "start", search.start_ns),
        ("start_unix_ns", "<=", "until", search.end_ns),
        ("max(0, end_unix_ns - start_unix_ns)", ">=", "least", search.min_ns),
        ("max(0, end_unix_ns - start_unix_ns)", "<=", "most", search.max_ns),
    ):
        if value is not None:
            where.append(f"{column} {sign} :{name}")
            values[name] = value
    for number, (key, text) in enumerate(search.tags.items()):
        if key == names.STEP and text.isdecimal() and len(text) < 16:
            # What is asked for most has an index.
            where.append("step = :step")
            values["step"] = int(text)
        elif key not in shape.DERIVED and key != "event":
            # Most spans don't have it anywhere: those need not be read.
            needles = {f"tag{number}_{place}": needle for place, needle in enumerate(_needles(key, text))}
            places = ("attributes", "events", "resources.text")
            looks = (f"instr({place}, :{name})" for place in places for name in needles)
            where.append(f"({' OR '.join(looks)})")
            values |= needles
    # The order is that of arrival, and there is no sorting: the first rows come at once.
    columns = SPAN_COLUMNS if search.tags else "trace_id"
    query = f"SELECT {columns} FROM {SPAN_TABLES} WHERE {' AND '.join(where)} ORDER BY spans.id DESC"  # noqa: S608 - our own names
    for found in moment.connection.execute(query, values):
        if not search.tags or search.tagged(rows.load(SpanRow, found)):
            yield found["trace_id"]


def _needles(key: str, text: str) -> list[str]:
    """
    How an attribute begins in JSON text whose value, written out, is ``text``: as text, or as anything else.
    """
    try:
        number: float | None = float(text)
    except ValueError:
        number = None
    if not text or (number is not None and text not in {repr(number), repr(number).removesuffix(".0")}):
        # Nothing is written out as nothing, and a number can be written in many ways.
        return [f"{to_text(key)}:"]
    return [f"{to_text(key)}:{to_text(text)}", f"{to_text(key)}:{text}"]


def _spans(moment: Moment, trace_id: str, unread: Sequence[SpanRow], *, limit: int) -> list[SpanRow]:
    query = f"SELECT {SPAN_COLUMNS} FROM {SPAN_TABLES} WHERE trace_id = ? ORDER BY start_unix_ns LIMIT ?"  # noqa: S608 - our own names
    found = {
        row.span_id: row
        for row in (rows.load(SpanRow, row) for row in moment.connection.execute(query, (trace_id, limit)))
    }
    for row in unread:
        found.setdefault(row.span_id, row)
    return sorted(found.values(), key=lambda row: (row.start_unix_ns, row.span_id))[:limit]


def _resources(moment: Moment) -> dict[int, dict[str, Value]]:
    return {row["id"]: orjson.loads(row["text"]) for row in moment.connection.execute("SELECT id, text FROM resources")}


def _of_service(moment: Moment, service: str) -> str:
    return to_text([number for number, resource in _resources(moment).items() if shape.service(resource) == service])
