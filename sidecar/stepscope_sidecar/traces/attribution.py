"""
Which mirrored span each piece of work on a device belongs to, and how long devices worked for each span.

Pure. Work belongs to the innermost span that was open where and when it was asked for: at the call that has its
correlation, else at the operator that has its External id (``ties``), else at what the device itself shows of the span.
All work of one graph launch belongs where that launch does. What was asked for before the recording, or in no span, is
attributed to none and counted by reason; in whole nanoseconds both parts add up to the whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope_sidecar.traces import intervals
from stepscope_sidecar.traces.intervals import Intervals
from stepscope_sidecar.traces.marks import Mark, marks
from stepscope_sidecar.traces.owners import Lineage, lineage, owners
from stepscope_sidecar.traces.ties import How, Ties
from stepscope_sidecar.traces.trace import NONE, WORK, Ints, Kind, Mask, Places, Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTimeOf:
    """
    What devices did for one span.
    """

    mark: Mark
    own_ns: int
    """Work that was asked for in this span and in none inside it, added up."""
    own_count: int
    total_ns: int
    """The same with spans inside it."""
    count: int
    busy_ns: int
    """How long any stream of a device worked for it and spans inside it, added up over devices."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """
    The work on devices, by its places in the trace, and for each piece its span's mark and how it was found.
    """

    trace: Trace
    marks: Sequence[Mark]
    rows: Places
    owner: Places
    """The place of a mark's event, or ``NONE``."""
    how: npt.NDArray[np.int8]
    other_thread: Mask
    """Asked for on a thread without spans, such as autograd's, while only spans one inside the other were open."""
    graph: Mask
    """Asked for by a call that started a graph: several pieces of work have one call."""
    external_ids_believed: bool

    @property
    def total_ns(self) -> int:
        """
        All work, added up.
        """
        return int(self.trace.duration_ns[self.rows].sum())

    @property
    def unattributed_ns(self) -> int:
        """
        What belongs to no span; with the spans' own parts it is the total, exactly.
        """
        return int(self.trace.duration_ns[self.rows[self.owner == NONE]].sum())

    def by_reason(self) -> Mapping[How, tuple[int, int]]:
        """
        How many pieces of work, and how long they are together, by how they were found or why not.
        """
        lengths = self.trace.duration_ns[self.rows]
        told = ((how, self.how == how) for how in How)
        return {how: (int(some.sum()), int(lengths[some].sum())) for how, some in told if some.any()}

    def spans(self) -> Sequence[DeviceTimeOf]:
        """
        What devices did for each span, in the order of the marks.
        """
        lengths = self.trace.duration_ns[self.rows]
        order = np.argsort(self.owner, kind="stable")
        owned = self.owner[order]
        own = {
            mark.row: order[np.searchsorted(owned, mark.row) : np.searchsorted(owned, mark.row, side="right")]
            for mark in self.marks
        }
        inside = _inside(self.marks, self.trace)
        found = []
        for mark in self.marks:
            all_of = np.concatenate([own[row] for row in (mark.row, *inside[mark.row])])
            found.append(
                DeviceTimeOf(
                    mark=mark,
                    own_ns=int(lengths[own[mark.row]].sum()),
                    own_count=len(own[mark.row]),
                    total_ns=int(lengths[all_of].sum()),
                    count=len(all_of),
                    busy_ns=intervals.busy_ns(self.trace, self.rows[all_of]),
                )
            )
        return found

    def time(self, mark: Mark) -> Intervals:
        """
        When devices worked for ``mark`` itself.
        """
        return intervals.of(self.trace, self.rows[self.owner == mark.row])


def attribute(
    trace: Trace, *, parents: Mapping[str, str] | None = None, spans: Sequence[Mark] | None = None
) -> Attribution:
    """
    The attribution of the work in ``trace``.

    Args:
        trace: the recording.
        parents: the parent of each span, by id; see ``owners``.
        spans: annotations that stand for spans, by start; the mirrored spans if there are none given.
    """
    found = marks(trace) if spans is None else spans
    rows = trace.rows(*WORK)
    rows = rows[trace.on_device[rows]]
    ties = Ties(trace, rows)
    ties.by_call()
    believed = ties.external_ids_believed()
    if believed:
        ties.by_external_id()
    lines = None if parents is None else lineage(found, parents)
    owner, other = _at(trace, ties.track, ties.at_ns, found, lines)
    tied = ties.track != NONE
    how = np.where(tied & (owner == NONE), How.OUTSIDE, ties.how).astype(np.int8)
    untied = np.flatnonzero(~tied)
    shown = _shown(trace, rows[untied], found)
    owner[untied] = shown
    how[untied[shown != NONE]] = How.CONTAINMENT
    return Attribution(
        trace=trace,
        marks=found,
        rows=rows,
        owner=owner,
        how=how,
        other_thread=other,
        graph=ties.graph,
        external_ids_believed=believed,
    )


def _at(trace: Trace, track: Places, at_ns: Ints, spans: Sequence[Mark], lines: Lineage | None) -> tuple[Places, Mask]:
    """
    The mark that was open at each moment of a track: one of the same thread, or where that has none at all one of its
    process; and which are of the latter kind.
    """
    owner = np.full(len(track), NONE, dtype=np.int32)
    other = np.zeros(len(track), dtype=np.bool_)
    where = {mark.row: int(trace.track[mark.row]) for mark in spans}
    threads = set(where.values())
    for one in np.unique(track[track != NONE]).tolist():
        at = np.flatnonzero(track == one)
        at = at[np.argsort(at_ns[at], kind="stable")]
        moments = at_ns[at].tolist()
        if one in threads:
            owner[at] = owners(moments, [mark for mark in spans if where[mark.row] == one], lines)
            continue
        pid = trace.tracks.pid[one]
        of_process = [mark for mark in spans if trace.tracks.pid[where[mark.row]] == pid]
        owner[at] = owners(moments, of_process, lines, nested=False)
        other[at] = owner[at] != NONE
    return owner, other


def _shown(trace: Trace, rows: Places, spans: Sequence[Mark]) -> Places:
    """
    The mark whose part on the device each piece of work lies in: the shortest such part on its stream.
    """
    found = np.full(len(rows), NONE, dtype=np.int32)
    by_name: dict[str, list[Mark]] = {}
    for mark in spans:
        by_name.setdefault(trace.name_of(mark.row), []).append(mark)
    parts = trace.rows(Kind.DEVICE_ANNOTATION)
    for row in parts[np.argsort(-trace.duration_ns[parts], kind="stable")].tolist():
        # A name that several spans have tells none of them; a mirrored span's holds its id.
        named = by_name.get(trace.name_of(row), [])
        if len(named) == 1:
            inside = (
                (trace.track[rows] == trace.track[row])
                & (trace.start_ns[rows] >= trace.start_ns[row])
                & (trace.start_ns[rows] + trace.duration_ns[rows] <= trace.start_ns[row] + trace.duration_ns[row])
            )
            found[inside] = named[0].row
    return found


def _inside(spans: Sequence[Mark], trace: Trace) -> Mapping[int, Sequence[int]]:
    """
    The marks that lie within each, on the same thread.
    """
    found: dict[int, list[int]] = {mark.row: [] for mark in spans}
    open_: dict[int, list[Mark]] = {}
    for mark in spans:
        stack = open_.setdefault(int(trace.track[mark.row]), [])
        stack[:] = [other for other in stack if other.end_ns > mark.start_ns or other.end_ns >= mark.end_ns]
        for other in stack:
            if other.end_ns >= mark.end_ns:
                found[other.row].append(mark.row)
        stack.append(mark)
    return found
