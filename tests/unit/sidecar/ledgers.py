"""
One window from its beginning to its end, and a store that keeps it, as tests of the ledger share them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stepscope import ids, names
from stepscope.names import State
from stepscope.settings import read
from stepscope_sidecar.ledger import StoreLedger
from stepscope_sidecar.recast import window_row
from stepscope_sidecar.rows import OwnSpan
from stepscope_sidecar.store import Store
from stepscope_sidecar.windows import Window
from tests.unit.sidecar.rig import SPAN, TRACE
from tests.unit.sidecar.stored import WAIT, put, receive

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
def kept(path: Path) -> Iterator[Store]:
    """
    A store at ``path``, which is closed again.
    """
    store = Store.open(path, run="run", attempt="a1")
    try:
        yield store
    finally:
        store.close(timeout=WAIT)


def ledger_of(store: Store, folder: Path) -> StoreLedger:
    """
    A ledger that keeps in ``store`` what a run below ``folder`` comes to.
    """
    settings = read({**ENVIRONMENT, "STEPSCOPE_DIR": str(folder)})
    return StoreLedger(store, settings, url=lambda: "http://127.0.0.1:1", unix_ns=lambda: 3)


@contextmanager
def costly(path: Path) -> Iterator[Store]:
    """
    A store at ``path`` with twelve steps of 1 s of work each, two of them of 1.5 s with a window.
    """
    with kept(path) as store:
        for step in range(1, 13):
            receive(store, step_spans(step, seconds=1.5 if step in {5, 6} else 1.0))
        recorded = replace(READY, opened_unix_ns=1, closed_unix_ns=2)
        for one in (recorded, replace(recorded, window="next", step=6)):
            put(store, window_row(one, run="run", attempt="a1"))
        yield store


def step_spans(step: int, *, seconds: float, attempt: str = "a1") -> list[OwnSpan]:
    """
    The spans of a trainer in ``step`` of ``attempt``: so many seconds of work, and one in which it waits.
    """
    start = step * 10**10
    end = start + int(seconds * 1e9)
    common: dict[str, str | int | float | bool] = {
        names.PARAM_VERSION: step - 1,
        names.STEP: step,
        names.ROLE: "trainer",
        names.RANK: 0,
    }
    trace = f"{ids.trace_id(attempt, step):032x}"
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
