"""
What the controller says, as the store has it; and what the steps in the store cost.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import ids, wire
from stepscope.names import State
from stepscope.selection import Selection
from stepscope.settings import read
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.errors import StoreFullError
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.recast import process_of, process_row, window_of, window_row
from stepscope_sidecar.takeover import inherit
from tests.unit.sidecar.ledgers import ENVIRONMENT, READY, RECORDING, WINDOW, costly, kept, ledger_of, step_spans
from tests.unit.sidecar.stored import put, receive

from .rig import SPAN, TRACE, register

NOBODY = 2**22 + 1
"""A pid that no process has: more than Linux gives."""


def test_a_recording_becomes_rows_counts_and_spans_once(tmp_path: Path) -> None:
    """
    One capture span with all that is known, each count once however often the window changed.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        ledger = ledger_of(store, tmp_path)
        ledger.window(WINDOW, before=None)
        ledger.window(RECORDING, before=WINDOW)
        finalising = replace(RECORDING, state=State.FINALISING)
        ledger.window(finalising, before=RECORDING)
        ledger.window(READY, before=finalising)
    with open_reader(path) as reader:
        rows, spans, totals = reader.windows(), {span.name: span for span in reader.spans()}, reader.totals()

    assert [READY] == [window_of(row) for row in rows]
    assert 2 == len(spans)
    assert {
        "param_version": 4,
        "rl.step": 5,
        "rl.role": "trainer",
        "rl.rank": 0,
        "profile.window.id": "w",
        "profile.tool": "torch",
        "profile.level": "spans",
        "profile.state": "ready",
        "profile.reason": "boundary",
        "profile.complete": True,
        "profile.version_at_close": 5,
        "profile.artifact.uri": "stepscope:run-a1/x.json.gz",
        "profile.artifact.url": "http://127.0.0.1:1/artifacts/run-a1/x.json.gz",
        "profile.artifact.bytes": 7,
        "profile.artifact.sha256": "ab",
        "profile.stall.open": 0.1,
        "profile.stall.start": 0.2,
        "profile.stall.stop": 0.3,
        "profile.stall.export": 0.4,
    } == spans["profile.capture"].attributes
    assert SPAN == spans["profile.capture"].parent_span_id
    assert [(TRACE, SPAN)] == [
        (link["trace_id"], link["span_id"]) for link in spans["profile.capture"].links if isinstance(link, dict)
    ]
    assert 1 == totals.value("stepscope_windows_total", role="trainer", tool="torch", outcome="ready")
    assert 7 == totals.value("stepscope_artifact_bytes_total", role="trainer", tool="torch")
    assert pytest.approx(0.3) == totals.value("stepscope_profiling_stall_seconds_total", role="trainer", phase="stop")
    lag = totals.histogram("stepscope_window_open_lag_seconds", role="trainer")
    assert lag is not None
    assert 1 == sum(lag.counts)
    assert pytest.approx(0.3) == lag.sum


def test_a_denied_window_has_a_row_and_no_span(tmp_path: Path) -> None:
    """
    It did not record, so there is nothing in the trace to open.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        ledger_of(store, tmp_path).window(replace(WINDOW, state=State.DENIED, reason="busy_device"), before=None)
    with open_reader(path) as reader:
        spans, totals = reader.spans(), reader.totals()

    assert [] == spans
    assert 1 == totals.value("stepscope_windows_total", role="trainer", tool="torch", outcome="denied")


def test_a_lost_recording_has_a_failed_capture_span(tmp_path: Path) -> None:
    """
    State and reason are on it; there is no artifact.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        lost = replace(RECORDING, state=State.ABORTED, reason="process_lost", closed_unix_ns=8)
        ledger_of(store, tmp_path).window(lost, before=RECORDING)
    with open_reader(path) as reader:
        span = reader.spans()[0]

    assert ("profile.capture", "aborted", "process_lost") == (
        span.name,
        span.attributes["profile.state"],
        span.attributes["profile.reason"],
    )
    assert "error" == span.status["code"]
    assert "profile.artifact.uri" not in span.attributes


def test_what_a_full_disk_put_off_does_not_undo_what_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The first write is tried again after the second was kept: its counts are added, its row is not.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        ledger = ledger_of(store, tmp_path)
        real = store.submit

        def full(work: object, *, size: int = 0) -> object:
            def fail(connection: object) -> None:
                raise StoreFullError("no space")

            return real(fail, size=size)

        monkeypatch.setattr(store, "submit", full)
        ledger.window(RECORDING, before=WINDOW)
        monkeypatch.setattr(store, "submit", real)
        ledger.window(READY, before=RECORDING)
        store.submit(lambda connection: None).result(10)
        left = ledger.unsaved
        ledger.retry()
    with open_reader(path) as reader:
        rows, spans = reader.windows(), reader.spans()

    assert 1 == left
    assert ["ready"] == [row.state for row in rows]
    assert {"profile.opened", "profile.capture"} == {span.name for span in spans}


def test_malformed_sample_rows_are_left_out(tmp_path: Path) -> None:
    """
    One odd row costs itself, not the others.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        rows: list[list[str | int | None]] = [["a", 3, 4, TRACE, SPAN], ["b"], ["c", None, None, None, None]]
        ledger_of(store, tmp_path).samples(wire.Samples(step=5, mini_batch=0, param_version=4, rows=rows))
    with open_reader(path) as reader:
        samples, totals = reader.samples(), reader.totals()

    assert [("a", 3), ("c", None)] == [(row.sample_id, row.oldest_version) for row in samples]
    assert 1 == totals.value("stepscope_samples_unknown_version_total")


def test_the_version_that_a_role_has_reached_is_counted(tmp_path: Path) -> None:
    """
    The highest of its processes; a process that has entered no step, such as a driver, has none.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        ledger = ledger_of(store, tmp_path)
        for pid, (role, step, version) in enumerate(
            [("trainer", 5, 5), ("trainer", 5, 4), ("rollouter", 5, 4), ("driver", 0, 0)], start=1
        ):
            process = Process.of(register(pid, role=role), peer=pid, unix_ns=1)
            process.closed_step, process.param_version = step, version
            ledger.process(process)
    with open_reader(path) as reader:
        found = [total for total in reader.totals().values if total.name == "stepscope_param_version"]

    assert {"trainer": 5.0, "rollouter": 4.0} == {total.labels["role"]: total.value for total in found}


def test_a_restart_inherits_plan_and_windows(tmp_path: Path) -> None:
    """
    The last order holds, not the environment.
    """
    settings = read({**ENVIRONMENT, "STEPSCOPE_DIR": str(tmp_path)})
    plan = Plan.of(settings, environment=ENVIRONMENT)
    path = tmp_path / "s.db"
    with kept(path) as store:
        ledger = ledger_of(store, tmp_path)
        ledger.window(RECORDING, before=WINDOW)
        ledger.plan(plan)
        ledger.plan(plan.halted(source="api", unix_ns=3))

    found = inherit(path, settings, plan, node="here")

    assert ("5", 2, True, "api", 3) == (
        found.plan.selection.text,
        found.plan.revision,
        found.plan.stopped,
        found.plan.source,
        found.plan.ordered_unix_ns,
    )
    assert [RECORDING] == found.windows
    assert not found.fresh
    assert [] == inherit(path, settings, plan, node="elsewhere").windows


def test_a_restart_before_anybody_registered_goes_by_its_own_environment(tmp_path: Path) -> None:
    """
    What a former sidecar's environment said holds once a process has come with it, and no sooner.
    """
    settings = read({**ENVIRONMENT, "STEPSCOPE_DIR": str(tmp_path)})
    plan = Plan.of(settings, environment=ENVIRONMENT)
    path = tmp_path / "s.db"
    with kept(path) as store:
        assert inherit(path, settings, plan, node="here").fresh
        ledger_of(store, tmp_path).plan(replace(plan, selection=Selection.parse("7")))
    before = inherit(path, settings, plan, node="here")
    with kept(path) as store:
        ledger_of(store, tmp_path).process(Process.of(register(7), peer=7, unix_ns=1))
    after = inherit(path, settings, plan, node="here")

    assert (True, "5") == (before.fresh, before.plan.selection.text)
    assert (False, "7") == (after.fresh, after.plan.selection.text)


def test_costs_are_read_from_spans_and_windows(tmp_path: Path) -> None:
    """
    What two of the steps took longer than the others, plus their stall.
    """
    path = tmp_path / "s.db"
    with costly(path):
        pass
    costs = Costs(path)

    found, again = costs.refresh(), costs.refresh()

    assert found == again
    assert {"trainer"} == set(found)
    assert pytest.approx(2.0) == found["trainer"].stall
    assert pytest.approx(1.0) == found["trainer"].slowdown
    assert pytest.approx(1.5) == found["trainer"].ratio


def test_costs_take_spans_that_come_late(tmp_path: Path) -> None:
    """
    A process may hand over the spans of a step long after others have theirs of the next: what is known then is the
    same as for one who looks for the first time.
    """
    path = tmp_path / "s.db"
    costs = Costs(path)
    window = replace(READY, opened_unix_ns=1, closed_unix_ns=2)
    steps = {step: step_spans(step, seconds=1.5 if step in {5, 6} else 1.0) for step in range(1, 13)}
    with kept(path) as store:
        for one in (window, replace(window, window="next", step=6)):
            put(store, window_row(one, run="run", attempt="a1"))
        for early in steps.values():
            receive(store, early[1:])
    early_found = costs.refresh()
    with kept(path) as store:
        for late in steps.values():
            receive(store, late[:1])

    assert {} == early_found
    assert Costs(path).refresh() == costs.refresh()
    assert pytest.approx(1.5) == costs.refresh()["trainer"].ratio


def test_a_companion_s_window_hides_nobody_s_stall(tmp_path: Path) -> None:
    """
    It has the step, role and rank of the window that it goes along with, and cost that process nothing.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        for step in range(1, 9):
            receive(store, step_spans(step, seconds=1.5 if step == 5 else 1.0))
        window = replace(READY, opened_unix_ns=1, closed_unix_ns=2)
        companion = replace(window, window="zz", tool="py-spy", pid=99, stall={}, beside=window.window)
        for one in (window, companion):
            put(store, window_row(one, run="run", attempt="a1"))

    found = Costs(path).refresh()

    assert 1.0 == found["trainer"].stall


def test_a_process_that_has_ended_is_taken_over_as_one_that_cannot_be_watched(tmp_path: Path) -> None:
    """
    Also while it waits for its parent, as a zombie, and where nobody knows when it began; one that lives is watched.
    """
    ended = subprocess.Popen([sys.executable, "-c", ""])
    started = ids.process_start(ended.pid)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    ours = Process.of(register(os.getpid(), process_start=ids.process_start()), peer=os.getpid(), unix_ns=1)
    others = [replace(ours, pid=pid, process_start=start) for pid, start in ((ended.pid, started), (NOBODY, 0))]

    try:
        watched = [process_of(process_row(one, run="r", attempt="a")).watch_pid for one in (ours, *others)]
    finally:
        ended.wait()

    assert [os.getpid(), 0, 0] == watched


def test_without_a_window_there_are_no_costs(tmp_path: Path) -> None:
    """
    Nothing is read, nothing is said.
    """
    path = tmp_path / "s.db"
    with kept(path) as store:
        receive(store, step_spans(1, seconds=1.0))

    assert {} == Costs(path).refresh()


def test_window_rows_keep_everything(tmp_path: Path) -> None:
    """
    A window comes back from its row as it was.
    """
    assert READY == window_of(window_row(READY, run="run", attempt="a1"))
