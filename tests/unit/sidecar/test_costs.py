"""
Which stall is counted for which step, and never as slowdown too.
"""

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar import schema
from stepscope_sidecar.costs import Costs, union
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.rows import WindowRow, upsert, values
from stepscope_sidecar.store import Store
from tests.unit.sidecar.ledgers import costly, kept, step_spans
from tests.unit.sidecar.stored import WAIT, put, receive, window

PROFILED = (5, 6, 12, 13)
STEPS = 20
SECOND = 10**9
STALL = {"open": 0.125, "start": 0.375}
"""Half a second of steps that work for two."""


def _recorded(step: int, *, opened: float, **changes: Any) -> WindowRow:
    """
    A window that has opened so many seconds after its step began, as ``step_spans`` has it, and closed at its end.
    """
    began = step * 10 * SECOND
    times = {"opened_unix_ns": began + int(opened * SECOND), "closed_unix_ns": began + 4 * SECOND}
    return window(step, **{"attempt": "a1", "window": f"w{step}", "stall_seconds": STALL, **times, **changes})


def _reckoned(path: Path, *windows: WindowRow, longer: float = 0.0) -> Estimate:
    """
    What profiling cost in steps of 2 s of work and 1 s of waiting, of which those that a window is of took ``longer``.
    """
    with kept(path) as store:
        for step in range(1, STEPS + 1):
            receive(store, step_spans(step, seconds=2.0 + (longer if step in {row.step for row in windows} else 0)))
        put(store, *windows)
    return Costs(path).refresh()["trainer"]


@pytest.mark.parametrize(("opened", "longer"), [(0.0, 0.0), (1.5, 0.5)])
def test_what_opening_took_counts_once_wherever_it_lies(tmp_path: Path, opened: float, longer: float) -> None:
    """
    Before the step, or in its midst, where the step took longer by it: it is stall, and slowed nothing down.
    """
    found = _reckoned(tmp_path / "s.db", *(_recorded(step, opened=opened) for step in PROFILED), longer=longer)

    assert pytest.approx((2.0, 0.0)) == (found.stall, found.slowdown)
    assert pytest.approx((0.5 / 2, 0.5 / 3)) == (found.ratio, found.wall_ratio)


def test_what_opening_a_shared_window_took_counts_in_its_first_step(tmp_path: Path) -> None:
    """
    Of two steps that share a window, opened in the midst of the first, the second took no longer by it.
    """
    windows = [_recorded(step, opened=1.5, other={"last_step": step + 1}) for step in (5, 12)]
    found = _reckoned(tmp_path / "s.db", *windows, longer=0.5)

    assert pytest.approx((1.0, 0.0, 1 / 8)) == (found.stall, found.slowdown, found.ratio)
    assert [(5, 0.5), (6, 0.0), (12, 0.5), (13, 0.0)] == [(cost.step, cost.stall) for cost in found.costs]


def test_the_process_went_on_while_a_tool_was_being_attached(tmp_path: Path) -> None:
    """
    It opens later than its process has asked for it: what lies before that is work, and what asking took is stall.
    """
    windows = [_recorded(step, opened=1.5, tool="py-spy") for step in PROFILED]
    found = _reckoned(tmp_path / "s.db", *windows)

    assert pytest.approx((2.0, 0.0, 0.25)) == (found.stall, found.slowdown, found.ratio)


def _elsewhere(store: Store, row: WindowRow) -> None:
    work = partial(_written, row=row)
    store.submit(work).result(WAIT)


def _written(connection: Any, row: WindowRow) -> None:
    connection.execute(upsert(row, "node_windows"), values(row))


@pytest.mark.parametrize("closed", [True, False])
def test_a_rank_that_was_started_again_within_a_step_paid_for_both_windows(tmp_path: Path, *, closed: bool) -> None:
    """
    On another node, which grants it one of its own; what it costs is known once both are over.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        for step in range(1, STEPS + 1):
            receive(store, step_spans(step, seconds=2.0))
        put(store, *(_recorded(step, opened=0.0) for step in PROFILED))
        again = {"window": "again", "node": "other", "pid": 9, **({} if closed else {"closed_unix_ns": 0})}
        _elsewhere(store, _recorded(6, opened=0.0, **again))
    found = Costs(path).refresh()["trainer"]

    assert pytest.approx(2.5 if closed else 1.5) == found.stall
    assert ([5, 6, 12, 13] if closed else [5, 12, 13]) == [cost.step for cost in found.costs]


def test_stall_is_taken_out_of_what_it_fell_into_once() -> None:
    """
    However many intervals it comes in, and wherever they overlap.
    """
    assert 8 == union([(0, 10), (5, 20)], without=[(-4, 2), (8, 12), (10, 18), (30, 40)])
    assert 10 == union([(0, 10)], without=[(3, 3)])


def test_a_look_reads_the_steps_of_which_something_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    More spans, or a window of which something else is said. The figures are those of who looks for the first time.
    """
    path = tmp_path / "s.db"
    asked: list[str] = []
    opened = schema.open_for_reading

    def traced(path: Path) -> sqlite3.Connection:
        connection = opened(path)
        connection.set_trace_callback(asked.append)
        return connection

    def look() -> tuple[dict[str, Estimate], list[int]]:
        asked.clear()
        found = costs.refresh()
        return found, [int(step) for query in asked for step in re.findall(r"FROM spans WHERE step = (\d+)", query)]

    rows = [_recorded(step, opened=0.0) for step in PROFILED]
    last = _reckoned(path, *rows, longer=0.5)
    costs = Costs(path)
    monkeypatch.setattr(schema, "open_for_reading", traced)
    first, again = look(), look()
    every = [query for query in asked if "FROM spans" in query]
    with kept(path) as store:
        receive(store, [replace(span, span_id=f"{span.span_id[1:]}0") for span in step_spans(3, seconds=9.0)])
        receive(store, step_spans(STEPS + 1, seconds=2.0))
    spans = look()
    spans_anew = Costs(path).refresh()
    with kept(path) as store:
        put(store, replace(rows[1], stall_seconds={"start": 2.0}))
    window = look()

    assert ({"trainer": last}, list(range(1, STEPS + 1))) == first
    assert ({"trainer": last}, []) == again
    assert ["SELECT coalesce(max(id), 0) FROM spans"] == every
    assert (spans_anew, [3, STEPS + 1]) == spans
    assert (Costs(path).refresh(), [6]) == window
    assert window[0] != spans[0] != first[0]


def test_a_store_that_is_damaged_is_no_estimate(tmp_path: Path) -> None:
    """
    It is told of as any store that cannot be read.
    """
    path = tmp_path / "s.db"
    with costly(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE spans")

    with pytest.raises(StoreError, match=r"cannot read the store .*: no such table: spans"):
        Costs(path).refresh()
