"""
When work on a device was asked for: the call, or the mark, that has its correlation.

Pure. All work of one graph launch has that launch's call. Work whose call came before the recording has none.
"""

import re
from dataclasses import dataclass

import numpy as np

from stepscope_sidecar.traces.trace import NONE, Ints, Kind, Mask, Places, Trace

_LAUNCH = re.compile(r"Launch(?!HostFunc)")
"""Calls that start work, by name: cudaLaunchKernel, hipModuleLaunchKernel, cudaGraphLaunch…"""

_WAIT = re.compile(r"Synchronize|StreamWait|EventQuery")
"""Calls in which the host waits for a device."""

UNKNOWN = NONE
"""Stands for a moment that the recording does not have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launches:
    """
    The calls that started work, and the work whose call is known.
    """

    calls: int
    host_ns: int
    """Time in those calls, added up."""
    waits: int
    """Calls in which the host waited for a device."""
    waiting_ns: int
    work: int
    """Kernels, copies and fills."""
    linked: int
    """Those of them whose call is in the recording."""
    median_delay_ns: int | None
    """From the call to the beginning of the work."""

    def json(self) -> dict[str, int | None]:
        """
        As ``stepscope show --json`` prints it.
        """
        return {
            "calls": self.calls,
            "host_ns": self.host_ns,
            "waits": self.waits,
            "waiting_ns": self.waiting_ns,
            "work": self.work,
            "linked": self.linked,
            "median_delay_ns": self.median_delay_ns,
        }


@dataclass(frozen=True, kw_only=True)
class Asked:
    """
    From when to when work was being asked for; ``UNKNOWN`` where that is not recorded.
    """

    begin_ns: Ints
    end_ns: Ints

    def of(self, some: Mask) -> "Asked":
        """
        The same of some of the work.
        """
        return Asked(begin_ns=self.begin_ns[some], end_ns=self.end_ns[some])


def asked(trace: Trace, rows: Places) -> Asked:
    """
    When each piece of the work at ``rows`` was asked for.
    """
    calls = trace.rows(Kind.RUNTIME, Kind.DRIVER)
    correlation = np.concatenate([trace.correlation[calls], trace.points.correlation])
    begin = np.concatenate([trace.start_ns[calls], trace.points.at_ns])
    end = np.concatenate([trace.end_ns[calls], trace.points.at_ns])
    # The first in time counts, where a correlation has several.
    order = np.lexsort((begin, correlation))
    order = order[correlation[order] != NONE]
    correlation = correlation[order]
    wanted = trace.correlation[rows]
    place = np.searchsorted(correlation, wanted)
    inside = (place < len(correlation)) & (wanted != NONE)
    inside[inside] = correlation[place[inside]] == wanted[inside]
    found = Asked(begin_ns=np.full(len(rows), UNKNOWN), end_ns=np.full(len(rows), UNKNOWN))
    found.begin_ns[inside] = begin[order[place[inside]]]
    found.end_ns[inside] = end[order[place[inside]]]
    return found


def launches(trace: Trace, rows: Places, when: Asked) -> Launches:
    """
    The launches of the work at ``rows``, which was asked for then.
    """
    calls = trace.rows(Kind.RUNTIME, Kind.DRIVER)
    launching = calls[trace.named(lambda name: _LAUNCH.search(name) is not None)[calls]]
    waiting = calls[trace.named(lambda name: _WAIT.search(name) is not None)[calls]]
    linked = when.begin_ns != UNKNOWN
    delay = trace.start_ns[rows[linked]] - when.begin_ns[linked]
    return Launches(
        calls=len(launching),
        host_ns=int(trace.duration_ns[launching].sum()),
        waits=len(waiting),
        waiting_ns=int(trace.duration_ns[waiting].sum()),
        work=len(rows),
        linked=int(linked.sum()),
        median_delay_ns=int(np.median(delay)) if len(delay) else None,
    )
