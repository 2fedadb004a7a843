"""
Sets of time: unions, what two have in common, and what one has that the other has not, in whole nanoseconds.

Pure. Work on a device overlaps, on streams of one device too; how long a device was busy is the length of a union.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope_sidecar.traces.trace import Ints, Mask, Trace


@dataclass(frozen=True, slots=True)
class Intervals:
    """
    A set of time as intervals that neither overlap nor touch, in order.
    """

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        """
        How long the set is.
        """
        return int((self.end - self.start).sum())

    def __len__(self) -> int:
        return len(self.start)

    def __or__(self, other: "Intervals") -> "Intervals":
        return union(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def __and__(self, other: "Intervals") -> "Intervals":
        return _where(self, other, lambda ours, theirs: ours & theirs)

    def __sub__(self, other: "Intervals") -> "Intervals":
        return _where(self, other, lambda ours, theirs: ours & ~theirs)

    def within(self, begin: int, end: int) -> "Intervals":
        """
        The part between two moments.
        """
        return self & between(begin, end)


def between(begin: int, end: int) -> Intervals:
    """
    The time from ``begin`` to ``end``; empty where that is not later.
    """
    return union(np.array([begin], dtype=np.int64), np.array([end], dtype=np.int64))


def union(start: Ints, end: Ints) -> Intervals:
    """
    The time that is in any interval from a ``start`` to its ``end``; those of no length do not count.
    """
    some = end > start
    start, end = start[some], end[some]
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(order) else end
    first = np.ones(len(start), dtype=np.bool_)
    first[1:] = start[1:] > end[:-1]
    last = np.append(first[1:], True) if len(start) else first
    return Intervals(start[first], end[last])


def of(trace: Trace, rows: npt.NDArray[np.integer]) -> Intervals:
    """
    The time in which any of the events at ``rows`` ran.
    """
    return union(trace.start_ns[rows], trace.start_ns[rows] + trace.duration_ns[rows])


def busy_ns(trace: Trace, rows: npt.NDArray[np.integer]) -> int:
    """
    How long each device was busy with the events at ``rows``, added up over devices.
    """
    devices = trace.device[rows]
    return sum(of(trace, rows[devices == device]).total for device in np.unique(devices))


def _where(ours: Intervals, theirs: Intervals, rule: Callable[[Mask, Mask], Mask]) -> Intervals:
    edges = np.unique(np.concatenate([ours.start, ours.end, theirs.start, theirs.end]))
    if len(edges) < 2:
        return Intervals(edges[:0], edges[:0])
    kept = rule(_inside(ours, edges[:-1]), _inside(theirs, edges[:-1]))
    return union(edges[:-1][kept], edges[1:][kept])


def _inside(some: Intervals, moments: Ints) -> Mask:
    """
    Whether each moment is in the set.
    """
    place = np.searchsorted(some.start, moments, side="right") - 1
    found: Mask = place >= 0
    found[found] = moments[found] < some.end[place[found]]
    return found
