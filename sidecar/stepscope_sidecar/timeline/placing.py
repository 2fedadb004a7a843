"""
Where a recording lies in time, and what of it belongs to a step.

Pure. A recording that has a clock keeps it; one without is put where other things say that it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.traces.marks import marks
from stepscope_sidecar.traces.trace import Clock, Places, Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """
    By how much a recording is shifted, and why that had to be found out, or "".
    """

    shift_ns: int
    why: str = ""


def place(trace: Trace, row: WindowRow, starts: Mapping[str, int]) -> Placed:
    """
    Where a recording lies in time: by its own clock, else by the spans on it, whose ``starts`` are known by id, else at
    the opening of its window.
    """
    if not len(trace):
        return Placed(shift_ns=0)
    first, last = int(trace.start_ns.min()), int(trace.end_ns.max())
    if trace.header.clock == Clock.EPOCH:
        opened, closed = row.opened_unix_ns, row.closed_unix_ns
        if not opened or not closed or (first < closed and opened < last):
            return Placed(shift_ns=0)
        why = "its times are not those of its window"
    else:
        why = trace.header.clock_reason
    shifts = sorted(
        starts[mark.span_id] - mark.start_ns
        for mark in marks(trace)
        if starts.get(mark.span_id, 0) >= max(1, row.opened_unix_ns)
    )
    if shifts:
        return Placed(shift_ns=shifts[len(shifts) // 2], why=f"{why}; it lies where the spans on it do")
    if row.opened_unix_ns:
        return Placed(shift_ns=row.opened_unix_ns - first, why=f"{why}; it begins where its window does")
    return Placed(shift_ns=0, why=why)


def within(trace: Trace, between: tuple[int, int] | None) -> Places:
    """
    The events that are in part ``between`` two moments of the recording's clock, or all.
    """
    if between is None:
        return np.arange(len(trace), dtype=np.int32)
    return np.flatnonzero((trace.end_ns >= between[0]) & (trace.start_ns <= between[1])).astype(np.int32)
