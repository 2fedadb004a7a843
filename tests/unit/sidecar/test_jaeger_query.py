"""
What a search for traces asks for, and what is said of one that cannot be read.
"""

import pytest
from starlette.datastructures import QueryParams

from stepscope_sidecar.jaeger.query import (
    DEFAULT_TRACES,
    FARTHEST,
    MAX_TRACES,
    QueryError,
    Search,
    duration,
    read_search,
    trace_id,
)
from stepscope_sidecar.rows import SpanRow

NOW = 1_800_000_000_000_000_000


def search(text: str) -> Search:
    """
    The search in a query string.
    """
    return read_search(QueryParams(text), now_ns=NOW)


def row(**changes: object) -> SpanRow:
    """
    A span of 5 ms that the searches below fit.
    """
    values: dict[str, object] = {
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
        "parent_span_id": "",
        "name": "rl.step",
        "start_unix_ns": 1_000_000,
        "end_unix_ns": 6_000_000,
        "attributes": {"rl.step": 5, "ok": True, "loss": 0.5, "text": "a"},
        "events": [{"name": "selection.changed", "unix_ns": 1, "attributes": {"rl.selection.steps": "5"}}],
        "status": {"code": "error", "message": "lost"},
        "resource": {"service.name": "trainer", "rl.rank": 0},
    }
    return SpanRow(**{**values, **changes})  # type: ignore[arg-type]


def test_what_nobody_said_is_not_asked_for() -> None:
    """
    A service is enough, as Grafana sends it: no times, no number.
    """
    assert Search(service="trainer", limit=DEFAULT_TRACES) == search("service=trainer")
    assert search("service=trainer").fits(row())


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("operation=rl.step", True),
        ("operation=rl", False),
        ("start=1000", True),
        ("start=1001", False),
        ("end=1000", True),
        ("end=999", False),
        ("minDuration=5ms", True),
        ("minDuration=5.1ms", False),
        ("maxDuration=5000us", True),
        ("maxDuration=4999999ns", False),
        ('tags={"rl.step":"5"}', True),
        ('tags={"rl.step":5}', True),
        ('tags={"rl.step":"50"}', False),
        ('tags={"rl.step":"5","ok":"true"}', True),
        ('tags={"rl.step":"5","ok":"false"}', False),
        ('tags={"loss":"0.50"}', True),
        ('tags={"loss":"half"}', False),
        ('tags={"error":"true"}', True),
        ('tags={"otel.status_code":"OK"}', False),
        ('tags={"rl.rank":"0"}', True),
        ('tags={"event":"selection.changed"}', True),
        ('tags={"rl.selection.steps":"5"}', True),
        ("tag=rl.step:5&tag=text:a", True),
        ("tag=text:b", False),
        ("lookback=custom", True),
        ("lookback=1h", False),
    ],
)
def test_a_span_fits_when_all_that_is_given_fits(text: str, fits: bool) -> None:
    """
    Bounds belong to what they bound; tags may be on the span, its process or an event; numbers are numbers.
    """
    assert fits is search(f"service=trainer&{text}").fits(row())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'service' is required"),
        ("service=a&start=yesterday", "'start'"),
        ("service=a&limit=many", "'limit'"),
        ("service=a&limit=0", "'limit'"),
        ("service=a&limit=-1", "'limit'"),
        ("service=a&minDuration=5", "'minDuration'"),
        ("service=a&minDuration=2s&maxDuration=1s", "greater than"),
        ("service=a&tags=rl.step=5", "'tags'"),
        ('service=a&tags=["rl.step"]', "'tags'"),
        ('service=a&tags={"rl.step":["5"]}', "'tags'"),
        ("service=a&tag=step", "key:value"),
        ("service=a&lookback=long", "'lookback'"),
        ("traceID=xyz", "no trace id"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    """
    The message names the parameter.
    """
    with pytest.raises(QueryError, match=message):
        search(text)


def test_traces_can_be_named_and_a_number_has_its_bound() -> None:
    """
    Ids need no service, and may be written short or in capitals.
    """
    assert (f"{'0' * 30}ab",) == search("traceID=AB").trace_ids
    assert "0123456789abcdef" * 2 == trace_id("0123456789ABCDEF" * 2)
    assert MAX_TRACES == search("service=a&limit=999999").limit


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1ns", 1),
        ("1.5us", 1500),
        ("2µs", 2000),
        ("2μs", 2000),
        (".5ms", 500_000),
        ("1h30m", 5_400_000_000_000),
        ("2d", 172_800_000_000_000),
    ],
)
def test_durations_are_exact(text: str, nanoseconds: int) -> None:
    """
    As Go writes them, and as the UI does.
    """
    assert nanoseconds == duration(text, name="minDuration")


def test_what_is_beyond_all_times_is_asked_for_as_the_farthest() -> None:
    """
    The store refuses greater numbers; a duration of thousands of digits is none.
    """
    found = search(f"service=a&end={'9' * 18}&lookback={'9' * 30}h&minDuration={'9' * 30}s&maxDuration={'9' * 31}s")

    assert (-FARTHEST, FARTHEST) == (found.start_ns, found.end_ns)
    assert (FARTHEST, FARTHEST) == (found.min_ns, found.max_ns)
    with pytest.raises(QueryError, match="is no duration"):
        search(f"service=a&minDuration={'9' * 5000}s")
