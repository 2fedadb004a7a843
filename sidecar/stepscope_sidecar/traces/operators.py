"""
Operators on the host: the time of each without what ran inside it, and the mirrored span that it ran in.

Pure. Every moment of a thread in which an operator runs is counted once, for the operator that began last of those
that run then; so the time of all operators is the length of a union, and adds up whatever overlaps.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stepscope_sidecar.traces.marks import marked, marks
from stepscope_sidecar.traces.owners import lineage, owners
from stepscope_sidecar.traces.trace import NONE, Ints, Kind, Places, Trace

CHUNK = 1 << 16
"""Operators that are made numbers of Python's at a time."""


@dataclass(frozen=True, kw_only=True)
class Operators:
    """
    The operators of a recording: their places, and for each its own time and the mark of the span that it began in.
    """

    rows: Places
    own_ns: Ints
    owner: Places
    """The place of a mirrored span's event, or ``NONE``."""

    @property
    def total_ns(self) -> int:
        """
        How long any operator ran, added up over threads.
        """
        return int(self.own_ns.sum())

    def by_owner(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """
        Own time and number of the operators of each mark, by its event; those of no span under ``NONE``.
        """
        owners, which = np.unique(self.owner, return_inverse=True)
        time = np.zeros(len(owners), dtype=np.int64)
        np.add.at(time, which, self.own_ns)
        count = np.bincount(which, minlength=len(owners))
        return dict(zip(owners.tolist(), time.tolist(), strict=True)), dict(
            zip(owners.tolist(), count.tolist(), strict=True)
        )


def operators(trace: Trace, parents: Mapping[str, str] | None = None) -> Operators:
    """
    The operators of ``trace``.

    Args:
        trace: the recording.
        parents: the parent of each span, by id, for threads on which spans run side by side, as an event loop's: an
            operator there belongs to the innermost span that is in line with all that are open at its start. Without
            it, spans are taken to be nested.
    """
    mark = marked(trace)
    rows = trace.rows(Kind.CPU_OP)
    rows = rows[~mark[rows] & ~trace.on_device[rows]]
    own, owner = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), NONE, dtype=np.int32)
    found = marks(trace)
    lines = None if parents is None else lineage(found, parents)
    tracks = trace.track[rows]
    for track in np.unique(tracks):
        at = np.flatnonzero(tracks == track)
        at = at[np.lexsort((-trace.duration_ns[rows[at]], trace.start_ns[rows[at]]))]
        start, length = trace.start_ns[rows[at]], trace.duration_ns[rows[at]]
        own[at] = _own(start, start + length)
        here = [one for one in found if trace.track[one.row] == track]
        owner[at] = owners(start.tolist(), here, lines)
    return Operators(rows=rows, own_ns=own, owner=owner)


def _own(start: Ints, end: Ints) -> Ints:
    """
    Each operator's own time, of one thread's by start.
    """
    own = array("q", bytes(8 * len(start)))
    open_: list[tuple[int, int]] = []
    cursor = place = 0

    def reach(moment: int) -> None:
        nonlocal cursor
        while open_ and open_[-1][1] <= moment:
            last, ended = open_.pop()
            if ended > cursor:
                own[last] += ended - cursor
                cursor = ended
        if open_ and moment > cursor:
            own[open_[-1][0]] += moment - cursor
        cursor = max(cursor, moment)

    # Numbers as Python has them take four times the memory of a column's.
    for first in range(0, len(start), CHUNK):
        part = slice(first, first + CHUNK)
        for began, ended in zip(start[part].tolist(), end[part].tolist(), strict=True):
            reach(began)
            open_.append((place, ended))
            place += 1
    reach(int(end.max()))
    return np.frombuffer(own, dtype=np.int64)
