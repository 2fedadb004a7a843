"""
Lanes: rows of a track on which slices lie inside each other or apart, never across, as viewers demand.

Pure. Which lane a slice gets depends on the slices before it alone.
"""

from array import array
from collections.abc import Callable, Iterable

import numpy as np

from stepscope_sidecar.traces.trace import Places, Trace


class Lanes:
    """
    Gives lanes to slices that come in the order of their starts, longer ones first.
    """

    def __init__(self) -> None:
        self._open: list[list[tuple[int, str]]] = []

    def __len__(self) -> int:
        return len(self._open)

    def place(self, start: int, end: int, key: str, *, inside: Callable[[str], bool]) -> int:
        """
        The lane of a slice: the first on which nothing runs, or on which what runs holds it and it may lie ``inside``.
        """
        for number, lane in enumerate(self._open):
            while lane and lane[-1][0] <= start:
                lane.pop()
            if not lane or (end <= lane[-1][0] and inside(lane[-1][1])):
                lane.append((end, key))
                return number
        self._open.append([(end, key)])
        return len(self._open) - 1


def of_events(trace: Trace, rows: Places) -> Places:
    """
    The lane of each event at ``rows`` on its track; calls lie in each other, so nearly all get the first.
    """
    found = np.zeros(len(rows), dtype=np.int32)
    start, end, track = trace.start_ns[rows], trace.end_ns[rows], trace.track[rows]
    order = np.lexsort((rows, -end, start, track))
    bounds = np.flatnonzero(np.diff(track[order])) + 1
    for places in np.split(order, bounds):
        if len(places):
            # Seen through a view, numbers are made one at a time and not all at once.
            found[places] = _nested(start[places].data, end[places].data)
    return found


def _nested(starts: Iterable[int], ends: Iterable[int]) -> "array[int]":
    """
    Lanes of slices of one track, in the order of their starts; what holds another does so whatever it is.
    """
    lanes: list[list[int]] = [[]]
    found = array("i")
    for start, end in zip(starts, ends, strict=True):
        for number, lane in enumerate(lanes):
            while lane and lane[-1] <= start:
                lane.pop()
            if not lane or end <= lane[-1]:
                lane.append(end)
                found.append(number)
                break
        else:
            found.append(len(lanes))
            lanes.append([end])
    return found
