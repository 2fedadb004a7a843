"""
What held a device back: its own work, or the host that gave it none; and the numbers that say so.

Pure. The evidence is what a device waited for: an idle moment is the host's where the call for the work that ends it
had not returned yet, and not the host's where it had (a dependency, another stream, a collective's other ranks).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from stepscope_sidecar.labels import duration
from stepscope_sidecar.traces import intervals
from stepscope_sidecar.traces.devices import DeviceTime
from stepscope_sidecar.traces.launches import UNKNOWN, Asked, Launches
from stepscope_sidecar.traces.trace import Places, Trace

BUSY = 0.8
"""A device that is busy for so much of the time is what the step waits for: a fifth could be gained elsewhere."""

STARVED = 0.4
"""A device that has nothing to do for so much of the time, because nothing was asked of it, waits for the host."""

TOLD = 0.9
"""The part of the work whose launch must be known for a word about idle time."""


class Side(StrEnum):
    """
    What a step is bound by.
    """

    HOST = "host"
    DEVICE = "device"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Idle:
    """
    Idle time of one device.
    """

    starved_ns: int
    """The call for the work that ended it had not returned; or there was no more work."""
    blocked_ns: int
    """The work that ended it had been asked for, and did not begin."""
    unknown_ns: int
    """The launch of that work is not in the recording."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """
    The answer, and in words what led to it.
    """

    by: Side
    evidence: tuple[str, ...]

    def json(self) -> dict[str, str | list[str]]:
        """
        As ``stepscope show --json`` prints it.
        """
        return {"by": self.by.value, "evidence": list(self.evidence)}


def idle(trace: Trace, rows: Places, when: Asked, begin: int, end: int) -> Idle:
    """
    The idle time from ``begin`` to ``end`` of the device whose work, all of it, is at ``rows`` and was asked for then.
    """
    busy = intervals.of(trace, rows).within(begin, end)
    gaps = intervals.between(begin, end) - busy
    order = np.argsort(trace.start_ns[rows], kind="stable")
    starts, asked = trace.start_ns[rows][order], when.end_ns[order]
    # The work that begins when a gap ends; of several, that which was asked for first.
    first, last = np.searchsorted(starts, gaps.end, side="left"), np.searchsorted(starts, gaps.end, side="right")
    starved = blocked = unknown = 0
    for place in range(len(gaps)):
        start, stop = int(gaps.start[place]), int(gaps.end[place])
        beginning = asked[first[place] : last[place]]
        if not len(beginning):
            # After the last work: the device had done all that it was asked for.
            starved += stop - start
        elif (beginning == UNKNOWN).any():
            unknown += stop - start
        else:
            moment = min(max(int(beginning.min()), start), stop)
            starved, blocked = starved + moment - start, blocked + stop - moment
    return Idle(starved_ns=starved, blocked_ns=blocked, unknown_ns=unknown)


def judge(times: Mapping[int, DeviceTime], idles: Mapping[int, Idle], launched: Launches | None) -> Bound:
    """
    What the busiest of the devices was bound by.
    """
    if not times:
        return Bound(by=Side.UNKNOWN, evidence=("no work of a device is in the recording",))
    device = max(times, key=lambda one: (times[one].busy_ns, -one))
    time, waited = times[device], idles[device]
    wall = max(time.wall_ns, 1)
    evidence = [f"device {device} was busy {_share(time.busy_ns, wall)} of the time"]
    if time.communication_ns:
        evidence.append(
            f"{_share(time.communication_exposed_ns, wall)} of the time in communication with no computing beside it"
        )
    evidence.append(
        f"idle with nothing asked of it {_share(waited.starved_ns, wall)}, with work asked for"
        f" {_share(waited.blocked_ns, wall)}, launch not recorded {_share(waited.unknown_ns, wall)}"
    )
    if launched is not None:
        evidence.append(_said(launched))
    by = _by(time, waited, wall, launched)
    if by is Side.UNKNOWN:
        evidence.append(_why(launched))
    return Bound(by=by, evidence=tuple(evidence))


def _by(time: DeviceTime, waited: Idle, wall: int, launched: Launches | None) -> Side:
    if time.busy_ns >= BUSY * wall:
        return Side.DEVICE
    if launched is None or launched.linked < TOLD * launched.work:
        return Side.UNKNOWN
    return Side.HOST if waited.starved_ns >= STARVED * wall else Side.UNKNOWN


def _why(launched: Launches | None) -> str:
    if launched is None or launched.linked < TOLD * launched.work:
        return f"unknown: of less than {TOLD:.0%} of the device's work the launch is recorded"
    return f"unknown: neither busy for {BUSY:.0%} of the time nor without work for {STARVED:.0%}"


def _said(launched: Launches) -> str:
    told = f"{launched.linked} of {launched.work} pieces of work have their launch in the recording"
    if launched.median_delay_ns is None:
        return told
    return f"{told}, and began {duration(launched.median_delay_ns)} after it (median)"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}"
