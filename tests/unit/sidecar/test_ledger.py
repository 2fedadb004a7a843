"""
What the controller says, as the store has it; and what the steps in the store cost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import ids, names, wire
from stepscope.names import State
from stepscope.settings import read
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.errors import StoreFullError
from stepscope_sidecar.ledger import StoreLedger, window_of, window_row
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import OwnSpan
from stepscope_sidecar.store import Store
from stepscope_sidecar.takeover import inherit
from stepscope_sidecar.windows import Window

from .rig import SPAN, TRACE, register

ENVIRONMENT = {"STEPSCOPE_STEPS": "5", "STEPSCOPE_RUN": "run", "STEPSCOPE_ATTEMPT": "a1"}

WINDOW = Window(
    window="w",
    step=5,
    param_version=4,
    role="trainer",
    rank=0,
    pid=1,
    process_start=2,
    node="here",
    tool="torch",
    level="spans",
    devices=("gpu0",),
)
RECORDING = replace(
    WINDOW,
    state=State.RECORDING,
    trace_id=TRACE,
    span_id=SPAN,
    opened_unix_ns=5,
    stall={"open": 0.1, "start": 0.2},
)
READY = replace(
    RECORDING,
    state=State.READY,
    reason="boundary",
    closed_unix_ns=9,
    version_at_close=5,
    stall={"open": 0.1, "start": 0.2, "stop": 0.3, "export": 0.4},
    artifact="run-a1/x.json.gz",
    bytes=7,
    sha256="ab",
    complete=True,
)


@contextmanager
def _store(path: Path) -> Iterator[Store]:
    store = Store.open(path, run="run", attempt="a1")
    try:
        yield store
    finally:
        store.close()


def _ledger(store: Store, folder: Path) -> StoreLedger:
    settings = read({**ENVIRONMENT, "STEPSCOPE_DIR": str(folder)})
    return StoreLedger(store, settings, url=lambda: "http://127.0.0.1:1", unix_ns=lambda: 3)


def test_a_recording_becomes_rows_counts_and_spans_once(tmp_path: Path) -> None:
    """
    One capture span with all that is known, each count once however often the window changed.
    """
    path = tmp_path / "s.db"
    with _store(path) as store:
        ledger = _ledger(store, tmp_path)
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
    with _store(path) as store:
        _ledger(store, tmp_path).window(replace(WINDOW, state=State.DENIED, reason="busy_device"), before=None)
    with open_reader(path) as reader:
        spans, totals = reader.spans(), reader.totals()

    assert [] == spans
    assert 1 == totals.value("stepscope_windows_total", role="trainer", tool="torch", outcome="denied")


def test_a_lost_recording_has_a_failed_capture_span(tmp_path: Path) -> None:
    """
    State and reason are on it; there is no artifact.
    """
    path = tmp_path / "s.db"
    with _store(path) as store:
        lost = replace(RECORDING, state=State.ABORTED, reason="process_lost", closed_unix_ns=8)
        _ledger(store, tmp_path).window(lost, before=RECORDING)
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
    with _store(path) as store:
        ledger = _ledger(store, tmp_path)
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
    with _store(path) as store:
        rows: list[list[str | int | None]] = [["a", 3, 4, TRACE, SPAN], ["b"], ["c", None, None, None, None]]
        _ledger(store, tmp_path).samples(wire.Samples(step=5, mini_batch=0, param_version=4, rows=rows))
    with open_reader(path) as reader:
        samples, totals = reader.samples(), reader.totals()

    assert [("a", 3), ("c", None)] == [(row.sample_id, row.oldest_version) for row in samples]
    assert 1 == totals.value("stepscope_samples_unknown_version_total")


def test_the_version_that_a_role_has_reached_is_counted(tmp_path: Path) -> None:
    """
    The highest of its processes; a process that has entered no step, such as a driver, has none.
    """
    path = tmp_path / "s.db"
    with _store(path) as store:
        ledger = _ledger(store, tmp_path)
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
    with _store(path) as store:
        ledger = _ledger(store, tmp_path)
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
    assert [] == inherit(path, settings, plan, node="elsewhere").windows


def test_costs_are_read_from_spans_and_windows(tmp_path: Path) -> None:
    """
    Eight steps of 1 s of work each, the fifth of 1.5 s with a window: half a step, plus its stall.
    """
    path = tmp_path / "s.db"
    with _store(path) as store:
        for step in range(1, 9):
            store.own(_step(step, seconds=1.5 if step == 5 else 1.0))
        window = replace(READY, opened_unix_ns=1, closed_unix_ns=2)
        store.put_window(window_row(window, run="run", attempt="a1"))
    costs = Costs(path)

    found, again = costs.refresh(), costs.refresh()

    assert found == again
    assert {"trainer"} == set(found)
    assert 1.0 == found["trainer"].stall
    assert pytest.approx(0.5) == found["trainer"].slowdown
    assert pytest.approx(1.5) == found["trainer"].ratio


def test_without_a_window_there_are_no_costs(tmp_path: Path) -> None:
    """
    Nothing is read, nothing is said.
    """
    path = tmp_path / "s.db"
    with _store(path) as store:
        store.own(_step(1, seconds=1.0))

    assert {} == Costs(path).refresh()


def test_window_rows_keep_everything(tmp_path: Path) -> None:
    """
    A window comes back from its row as it was.
    """
    assert READY == window_of(window_row(READY, run="run", attempt="a1"))


def _step(step: int, *, seconds: float) -> list[OwnSpan]:
    start = step * 10**10
    end = start + int(seconds * 1e9)
    common: dict[str, str | int | float | bool] = {
        names.PARAM_VERSION: step - 1,
        names.STEP: step,
        names.ROLE: "trainer",
        names.RANK: 0,
    }
    trace = f"{ids.trace_id('a1', step):032x}"
    return [
        OwnSpan(
            name=names.RL_STEP_PROCESS,
            trace_id=trace,
            span_id=f"{step:016x}",
            start_unix_ns=start,
            end_unix_ns=end + 10**9,
            attributes=common,
        ),
        OwnSpan(
            name=names.TRAIN_UPDATE_ACTOR,
            trace_id=trace,
            span_id=f"{step + 100:016x}",
            parent_span_id=f"{step:016x}",
            start_unix_ns=start,
            end_unix_ns=end,
            attributes={**common, names.BUCKET: "productive", names.TOKENS: 100},
        ),
    ]
