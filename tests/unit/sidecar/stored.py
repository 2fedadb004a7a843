"""
What tests of the store share: a window's row, ways to write, and looks from outside.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from stepscope_sidecar.rows import OwnSpan, ProcessRow, SelectionRow, WindowRow
from stepscope_sidecar.store import Store, write
from tests.unit.sidecar.bodies import ATTEMPT

WAIT = 60.0
"""Seconds that anything may take on a loaded machine."""


def window(step: int, state: str = "ready", **changes: Any) -> WindowRow:
    """
    A window of ``step`` as the store has it.
    """
    values: dict[str, Any] = {
        "window": f"w-{step}-{state}",
        "run": "r",
        "attempt": "a",
        "node": "n",
        "step": step,
        "param_version": step - 1,
        "role": "trainer",
        "rank": 0,
        "pid": 7,
        "tool": "torch",
        "level": "ops",
        "state": state,
    }
    return WindowRow(**{**values, **changes})


WINDOW = window(
    5,
    run="demo",
    attempt=ATTEMPT,
    complete=True,
    artifact="demo-1/step-000005/trace.json.gz",
    stall_seconds={"start": 0.25},
    other={"note": [1, None]},
)


def put(store: Store, *rows: WindowRow | ProcessRow | SelectionRow) -> None:
    """
    Write ``rows``, one after the other.
    """
    for row in rows:
        store.submit(partial(write, row=row)).result(WAIT)


def receive(store: Store, spans: Iterable[OwnSpan]) -> None:
    """
    Keep ``spans`` as one request.
    """
    made = list(spans)
    store.append(store.encode(made), len(made)).result(WAIT)


def holds(condition: Callable[[], bool]) -> bool:
    """
    Whether ``condition`` comes true before the deadline.
    """
    deadline, pause = time.monotonic() + WAIT, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.02)
    return True


def listed(folder: Path) -> list[str]:
    """
    What lies in ``folder``, by name.
    """
    return sorted(path.name for path in folder.iterdir())


def count(path: Path, table: str) -> int:
    """
    Rows in ``table``.
    """
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()
