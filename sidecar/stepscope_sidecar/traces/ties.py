"""
Where and when work on a device was asked for: the thread and the moment, by what profilers write to tie the two.

Pure. Which span was open there is ``owners``'.
"""

from enum import IntEnum

import numpy as np

from stepscope_sidecar.traces.trace import NONE, Ints, Kind, Mask, Places, Trace

SAME = 0.9
"""
The part of the kernels with equal External id and correlation from which on the former is not believed: from 2022 to
2024-02 Kineto wrote the correlation there, which matches nothing or, worse, an operator that happens to have that id.
"""


class How(IntEnum):
    """
    By what a piece of work was tied to its span, or why it was not.
    """

    CORRELATION = 1
    EXTERNAL_ID = 2
    CONTAINMENT = 3
    """It ran within what the device shows of the span: from its first to its last kernel, on one stream."""
    BEFORE = -1
    """Its call came before the recording: ids count upwards, and its is lower than any that was recorded."""
    UNTIED = -2
    """Nothing in the recording says who asked for it."""
    OUTSIDE = -3
    """It was asked for, and in no span, or in none that can be told from others."""


class Ties:
    """
    Where each piece of work was asked for, as far as one of the ways has found it.
    """

    def __init__(self, trace: Trace, rows: Places) -> None:
        self._trace = trace
        self._rows = rows
        self.track = np.full(len(rows), NONE, dtype=np.int32)
        self.at_ns = np.zeros(len(rows), dtype=np.int64)
        self.how = np.full(len(rows), How.UNTIED, dtype=np.int8)
        self.graph = np.zeros(len(rows), dtype=np.bool_)

    def by_call(self) -> None:
        """
        By the call that has the same correlation; a flow of the profiler's own goes before it.
        """
        trace = self._trace
        calls = trace.rows(Kind.RUNTIME, Kind.DRIVER)
        calls = calls[trace.correlation[calls] != NONE]
        points = trace.points
        wanted = trace.correlation[self._rows]
        place = find(wanted, trace.correlation[calls], trace.start_ns[calls])
        known = place != NONE
        self._take(known, trace.track[calls][place[known]], trace.start_ns[calls][place[known]], How.CORRELATION)
        graph = trace.named(lambda name: "GraphLaunch" in name)
        self.graph[known] = graph[calls][place[known]]
        asked = find(wanted, points.correlation, points.at_ns)
        known = asked != NONE
        self._take(known, points.track[asked[known]], points.at_ns[asked[known]], How.CORRELATION)
        first = trace.correlation[calls].min() if len(calls) else NONE
        self.how[(self.track == NONE) & (wanted != NONE) & (wanted < first)] = How.BEFORE

    def by_external_id(self) -> None:
        """
        By the operator that has the same External id, where no call is known.
        """
        trace = self._trace
        hosts = trace.rows(Kind.CPU_OP, Kind.ANNOTATION)
        hosts = hosts[(trace.external_id[hosts] != NONE) & ~trace.on_device[hosts]]
        place = find(trace.external_id[self._rows], trace.external_id[hosts], trace.start_ns[hosts])
        known = (place != NONE) & (self.track == NONE)
        self._take(known, trace.track[hosts][place[known]], trace.start_ns[hosts][place[known]], How.EXTERNAL_ID)

    def external_ids_believed(self) -> bool:
        """
        Whether the External ids of kernels are those of operators.
        """
        trace = self._trace
        kernels = self._rows[trace.kind[self._rows] == Kind.KERNEL]
        external, correlation = trace.external_id[kernels], trace.correlation[kernels]
        both = (external != NONE) & (correlation != NONE)
        same = int((external[both] == correlation[both]).sum())
        return bool((external != NONE).any()) and not (both.any() and same >= SAME * int(both.sum()))

    def _take(self, known: Mask, track: Places, at_ns: Ints, how: How) -> None:
        self.track[known], self.at_ns[known], self.how[known] = track, at_ns, how


def find(wanted: Ints, ids: Ints, at_ns: Ints) -> Places:
    """
    For each id that is ``wanted`` the place of the first event in time that has it, or ``NONE``.
    """
    order = np.lexsort((at_ns, ids))
    ordered = ids[order]
    place = np.searchsorted(ordered, wanted)
    found = (place < len(ordered)) & (wanted != NONE)
    found[found] = ordered[place[found]] == wanted[found]
    result = np.full(len(wanted), NONE, dtype=np.int32)
    result[found] = order[place[found]]
    return result
