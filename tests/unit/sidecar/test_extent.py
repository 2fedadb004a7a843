"""
Which steps a run has, once it is over and before.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import names
from stepscope_sidecar.extent import steps_of
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import OwnSpan, ProcessRow
from stepscope_sidecar.serve import application
from stepscope_sidecar.store import Store
from tests.unit.sidecar.calling import Caller, FakeController, calling
from tests.unit.sidecar.ledgers import kept, step_spans
from tests.unit.sidecar.stored import put, receive, window
from tests.unit.sidecar.test_pages import Page

LAST = 3


def after(step: int) -> list[OwnSpan]:
    """
    What a process leaves of ``step`` that exits in it, after the last update.
    """
    whole, work = step_spans(step, seconds=0.5)
    return [replace(whole, attributes={**whole.attributes, names.PARTIAL: True}), work]


def process(*, pid: int = 7, end_reason: str = "process_exit") -> ProcessRow:
    """
    A trainer that has left, after the last update.
    """
    return ProcessRow(
        pid=pid,
        process_start=1,
        node="n",
        role="trainer",
        rank=0,
        param_version=LAST,
        entered_step=LAST + 1,
        ended_unix_ns=9,
        end_reason=end_reason,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """
    A store with three steps and what followed the last update.
    """
    path = tmp_path / "demo-a1" / "stepscope.db"
    path.parent.mkdir()
    with kept(path) as store:
        for step in range(1, LAST + 1):
            receive(store, step_spans(step, seconds=1.0))
        receive(store, after(LAST + 1))
        put(store, process())
        yield store


def steps(store: Store, *, over: bool = True) -> list[int]:
    """
    The steps that the run has.
    """
    with open_reader(store.path) as reader:
        return steps_of(reader, over=over)


def test_what_follows_the_last_update_is_no_step_once_all_have_left(store: Store) -> None:
    """
    While they work it may yet become one. A window that was denied there makes none.
    """
    put(store, window(LAST + 1, "denied", attempt="a1"))

    assert [1, 2, 3] == steps(store)
    assert [1, 2, 3, 4] == steps(store, over=False)


def test_a_last_step_that_was_recorded_or_that_a_process_died_in_stays(store: Store) -> None:
    """
    Somebody wants to see it.
    """
    put(store, process(pid=8, end_reason="process_lost"))
    died = steps(store)
    put(store, process(pid=8), window(LAST + 1, attempt="a1", opened_unix_ns=1))

    assert [1, 2, 3, 4] == died
    assert [1, 2, 3, 4] == steps(store)


def test_pages_and_metrics_of_a_run_that_has_ended_count_its_updates(store: Store) -> None:
    """
    Columns, the number of steps among all runs, what is in force, and the histogram of steps' seconds; the page of
    what followed says what it is.
    """
    caller = Caller(application(store.path, token=""), host="127.0.0.1")
    run, runs, later = (Page(caller.get(path).text) for path in ("/", "/runs", f"/steps/{LAST + 1}"))

    assert "steps 1 to 3 of 1 to 3" in run.words()
    assert "last weights v3" in run.words()
    assert f"steps/{LAST + 1}" not in run.links()
    assert "3" in runs.words().split()
    assert "step 4 (weights v3 in force, after the last update)" in later.words()
    assert 'stepscope_step_seconds_count{role="trainer"} 3.0' in caller.get("/metrics").text


def test_the_step_that_goes_on_is_shown(store: Store, live: FakeController) -> None:
    """
    From its first span on, so that what is counted is what is there.
    """
    (_, work) = step_spans(LAST + 2, seconds=1.0)
    receive(store, [replace(work, name="train.wait_samples")])
    found = Page(calling(store.path.parent.parent, live).get("/").text)

    assert "steps 1 to 5 of 1 to 5" in found.words()
    assert f"steps/{LAST + 2}" in found.links()
