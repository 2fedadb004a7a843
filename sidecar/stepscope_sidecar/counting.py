"""
What is counted of a window when it begins to record and when it is final.

Runs in the transaction that writes the window's row, so that both change together.
"""

import sqlite3
from dataclasses import replace

from stepscope.names import Incomplete, State
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar import capture, totals
from stepscope_sidecar.totals import Exemplar
from stepscope_sidecar.windows import Window

WINDOWS = "stepscope_windows_total"
STALL = "stepscope_profiling_stall_seconds_total"
INCOMPLETE = "stepscope_incomplete_recordings_total"

ASKED, LOST = "asked", "lost"
"""Causes: somebody wanted it so, or something of the step was lost."""

ORDERED = frozenset({Incomplete.STOPPED, Incomplete.OPENED_LATE, Incomplete.PARTIAL_STEP})
"""Reasons that follow from an order, or from where the run ends."""


def begin(connection: sqlite3.Connection, role: str, tool: str) -> None:
    """
    Have every counter of the windows of ``role`` by ``tool`` at 0 before the first.

    One that begins with its first event has no increase that Prometheus could see, and no alert would tell of it.
    """
    labels = {"role": role, "tool": tool}
    for state in State:
        if state.final:
            totals.add(connection, WINDOWS, {**labels, "outcome": state.value}, 0)
    for cause in (ASKED, LOST):
        totals.add(connection, INCOMPLETE, {**labels, "cause": cause}, 0)
    for phase in capture.STALL:
        totals.add(connection, STALL, {"role": role, "phase": phase}, 0)
    totals.add(connection, "stepscope_artifact_bytes_total", labels, 0)


def start(connection: sqlite3.Connection, window: Window) -> None:
    """
    ``window`` has begun to record.
    """
    lag = window.stall.get("open", 0.0) + window.stall.get("start", 0.0)
    if window.tool in LEAVES:
        # The process did not wait for its tool, which records all the same only now.
        lag = max(0, window.opened_unix_ns - window.asked_unix_ns) / 1e9
    labels = {"role": window.role}
    totals.observe(connection, "stepscope_window_open_lag_seconds", labels, [lag], _exemplar(window, lag))


def end(connection: sqlite3.Connection, window: Window) -> None:
    """
    ``window`` is final.
    """
    labels = {"role": window.role, "tool": window.tool}
    exemplar = _exemplar(window, 1.0)
    totals.add(connection, WINDOWS, {**labels, "outcome": window.state.value}, 1, exemplar)
    for phase, seconds in window.stall.items():
        if phase in capture.STALL:
            stall = _exemplar(window, seconds)
            totals.add(connection, STALL, {"role": window.role, "phase": phase}, seconds, stall)
    if window.state is State.READY:
        size = replace(exemplar, value=float(window.bytes)) if exemplar else None
        totals.add(connection, "stepscope_artifact_bytes_total", labels, window.bytes, size)
        if window.complete is False:
            cause = ASKED if window.incomplete_reason in ORDERED else LOST
            totals.add(connection, INCOMPLETE, {**labels, "cause": cause}, 1, exemplar)


def _exemplar(window: Window, value: float = 0.0) -> Exemplar | None:
    if not capture.recorded(window):
        return None
    return Exemplar(
        trace_id=window.trace_id,
        span_id=window.span_id,
        step=window.step,
        value=value,
        unix_ns=window.closed_unix_ns or window.opened_unix_ns,
    )
