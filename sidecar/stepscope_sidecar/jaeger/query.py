"""
What a search for traces asks for, read from the parameters of Jaeger's query API.

Pure. Times are microseconds since 1970, durations are written as Go does (``1h30m``, ``1.5ms``), tags are a JSON
object; a span fits when all that is given fits.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import orjson

from stepscope.errors import StepscopeError
from stepscope_sidecar.jaeger import shape
from stepscope_sidecar.jaeger.shape import Tag
from stepscope_sidecar.rows import SpanRow

DEFAULT_TRACES = 100
"""Traces in an answer that does not ask for a number; Jaeger's own default."""

MAX_TRACES = 1500
"""The most that Jaeger's UI lets a person ask for."""

UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 24 * 3600 * 10**9,
    "w": 7 * 24 * 3600 * 10**9,
}
"""Nanoseconds in a unit; two letters are in use for a millionth, and days and weeks are the UI's."""

FARTHEST = 2**63 - 1
"""The greatest number in the store; what asks for more asks for this."""

MAX_DURATION = 100
"""Characters of a duration; the longest that Go writes has 20."""

PART = re.compile(rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(sorted(UNITS, key=len, reverse=True))})")

TRACE_ID = re.compile(r"[0-9a-fA-F]{1,32}")


class QueryError(StepscopeError):
    """
    A parameter cannot be read, or a needed one is missing; the message names it.
    """


class Parameters(Protocol):
    """
    The parameters of a request.
    """

    def get(self, key: str) -> str | None:
        """
        The last value of ``key``.
        """

    def getlist(self, key: str) -> list[str]:
        """
        All values of ``key``.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """
    Which spans a trace must have one of.
    """

    service: str = ""
    operation: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int | None = None
    min_ns: int | None = None
    max_ns: int | None = None
    limit: int = DEFAULT_TRACES
    trace_ids: tuple[str, ...] = ()
    """Where given, these traces are meant and nothing else counts."""

    def fits(self, row: SpanRow) -> bool:
        """
        Whether ``row`` is a span that was asked for.
        """
        took = max(0, row.end_unix_ns - row.start_unix_ns)
        return (
            (not self.service or shape.service(row.resource) == self.service)
            and (not self.operation or row.name == self.operation)
            and (self.start_ns is None or row.start_unix_ns >= self.start_ns)
            and (self.end_ns is None or row.start_unix_ns <= self.end_ns)
            and (self.min_ns is None or took >= self.min_ns)
            and (self.max_ns is None or took <= self.max_ns)
            and self.tagged(row)
        )

    def tagged(self, row: SpanRow) -> bool:
        """
        Whether ``row`` has every tag: on itself, on its process, or on one of its events.
        """
        if not self.tags:
            return True
        places: list[Sequence[Tag]] = [shape.tags(row), shape.process_tags(row.resource)]
        places += [log["fields"] for log in shape.logs(row)]
        return all(
            any(item["key"] == key and _says(item, text) for place in places for item in place)
            for key, text in self.tags.items()
        )


def read_search(parameters: Parameters, *, now_ns: int) -> Search:
    """
    The search in the parameters of ``/api/traces``.

    Raises:
        QueryError: it cannot be read, or names neither a service nor traces.
    """
    ids = tuple(trace_id(text) for text in parameters.getlist("traceID"))
    service = parameters.get("service") or ""
    if not service and not ids:
        raise QueryError("parameter 'service' is required")
    end_ns = _microseconds(parameters, "end")
    start_ns = _microseconds(parameters, "start")
    lookback = parameters.get("lookback") or ""
    if start_ns is None and lookback not in {"", "custom"}:
        start_ns = (now_ns if end_ns is None else end_ns) - duration(lookback, name="lookback")
    return made(
        service=service,
        operation=parameters.get("operation") or "",
        tags={**_pairs(parameters.getlist("tag")), **_objects(parameters.getlist("tags"), name="tags")},
        times=(start_ns, end_ns),
        durations=(parameters.get("minDuration"), parameters.get("maxDuration")),
        limit=parameters.get("limit"),
        trace_ids=ids,
    )


def made(
    *,
    service: str,
    operation: str,
    tags: Mapping[str, str],
    times: tuple[int | None, int | None],
    durations: tuple[str | None, str | None],
    limit: str | None,
    trace_ids: tuple[str, ...] = (),
) -> Search:
    """
    A search of parts that are still text.

    Raises:
        QueryError: a part cannot be read, or the parts contradict each other.
    """
    least, most = (
        duration(text, name=name) if text else None
        for name, text in zip(("minDuration", "maxDuration"), durations, strict=True)
    )
    if least is not None and most is not None and most < least:
        raise QueryError("'maxDuration' should be greater than 'minDuration'")
    wanted = _number(limit, name="limit") if limit else DEFAULT_TRACES
    if wanted < 1:
        raise QueryError("parameter 'limit' must be at least 1")
    return Search(
        service=service,
        operation=operation,
        tags=tags,
        start_ns=None if times[0] is None else stored(times[0]),
        end_ns=None if times[1] is None else stored(times[1]),
        min_ns=None if least is None else stored(least),
        max_ns=None if most is None else stored(most),
        limit=min(wanted, MAX_TRACES),
        trace_ids=trace_ids,
    )


def trace_id(text: str) -> str:
    """
    A trace id as the store has it: in lower case, all its zeros in front.

    Raises:
        QueryError: it is none.
    """
    if not TRACE_ID.fullmatch(text):
        raise QueryError(f"{text[:40]!r} is no trace id: up to 32 hexadecimal digits")
    return text.lower().zfill(32)


def duration(text: str, *, name: str) -> int:
    """
    A duration in nanoseconds.

    Raises:
        QueryError: it is none.
    """
    parts = PART.findall(text) if len(text) <= MAX_DURATION else []
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise QueryError(f"parameter {name!r}: {text[:40]!r} is no duration, such as 1.5s or 200ms")
    return int(sum(Fraction(number) * UNITS[unit] for number, unit in parts))


def stored(nanoseconds: int) -> int:
    """
    The nearest number that the store can compare with.
    """
    return max(-FARTHEST, min(FARTHEST, nanoseconds))


def tag_object(text: str, *, name: str) -> dict[str, str]:
    """
    Tags and the text of their values, from a JSON object.

    Raises:
        QueryError: it is none.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str | int | float) for value in found.values()):
        raise QueryError(f"malformed {name!r} parameter: not a JSON object of strings")
    return {key: value if isinstance(value, str) else orjson.dumps(value).decode() for key, value in found.items()}


def _objects(texts: Sequence[str], *, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        found |= tag_object(text, name=name) if text else {}
    return found


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, colon, value = text.partition(":")
        if not colon:
            raise QueryError(f"malformed 'tag' parameter {text[:40]!r}: expecting key:value")
        found[key] = value
    return found


def _microseconds(parameters: Parameters, name: str) -> int | None:
    text = parameters.get(name)
    return _number(text, name=name) * 1000 if text else None


def _number(text: str, *, name: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise QueryError(f"unable to parse param {name!r}: {text[:40]!r} is not a whole number")
    return int(text)


def _says(item: Tag, text: str) -> bool:
    """
    Whether a tag's value, written out, is ``text``; numbers are compared as numbers.
    """
    value = item["value"]
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return str(value) == text
