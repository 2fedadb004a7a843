"""
The verdict on a recording: does it hold the whole of its window, and if not, what is missing and how much of it.

Pure. What the agent knew to be missing outranks it, and whether all ranks recorded is the census'.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.names import Incomplete
from stepscope.wire import Closed
from stepscope_sidecar.artifacts import Verdict
from stepscope_sidecar.artifacts.launches import Launched
from stepscope_sidecar.artifacts.survey import Recording

SLACK_NS = 100_000_000
"""
A recording that begins so much later than its window, or ends so much earlier, has no gap: the agent's own clock is
read within microseconds of the profiler's, an engine's workers are told by message, and clocks of two nodes differ.
"""

KERNELS = {
    "head": Incomplete.KERNELS_MISSING_HEAD,
    "tail": Incomplete.KERNELS_MISSING_TAIL,
    "": Incomplete.KERNELS_MISSING,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lack:
    reason: Incomplete
    share: float | None
    text: str


def judge(recordings: Sequence[Recording], closed: Closed) -> Verdict:
    """
    The verdict on the files of one window; several where an engine's workers have written one each.

    ``complete`` is None where there is nothing to judge by: no mark was set, and the file does not say from when to
    when its profiler was on.
    """
    lacks = [
        *_room(recordings),
        *_marks(recordings),
        *_kernels(recordings),
        *_gaps(recordings, closed),
    ]
    if not lacks:
        known = any(r.expected or all(r.session_unix_ns) for r in recordings)
        return Verdict(complete=True if known else None)
    return Verdict(
        complete=False,
        reason=lacks[0].reason,
        share=lacks[0].share,
        detail="; ".join(f"{lack.reason}: {lack.text}" for lack in lacks),
    )


def _room(recordings: Sequence[Recording]) -> list[_Lack]:
    stopped = any(recording.stopped_early for recording in recordings)
    return [_Lack(reason=Incomplete.TRUNCATED, share=None, text="the profiler had no room for more")] if stopped else []


def _marks(recordings: Sequence[Recording]) -> list[_Lack]:
    missing = sum(len(recording.missing) for recording in recordings)
    if not missing:
        return []
    expected = sum(recording.expected for recording in recordings)
    text = f"{missing} of {expected} mirrored spans are not on the timeline"
    return [_Lack(reason=Incomplete.MARKERS_MISSING, share=missing / expected, text=text)]


def _kernels(recordings: Sequence[Recording]) -> list[_Lack]:
    launches = [recording.launched for recording in recordings]
    total = Launched(count=sum(one.count for one in launches), missing=sum(one.missing for one in launches))
    if not total.missing:
        return []
    places = {one.where for one in launches if one.missing}
    where = places.pop() if len(places) == 1 else ""
    at = f", at the {where}" if where else ""
    text = f"{total.missing} of {total.count} launches have nothing on the device{at}"
    return [_Lack(reason=KERNELS[where], share=total.share, text=text)]


def _gaps(recordings: Sequence[Recording], closed: Closed) -> list[_Lack]:
    length = closed.closed_unix_ns - closed.opened_unix_ns
    sessions = [recording.session_unix_ns for recording in recordings if all(recording.session_unix_ns)]
    if length <= 0 or not sessions:
        return []
    head = max(begin for begin, _ in sessions) - closed.opened_unix_ns
    tail = closed.closed_unix_ns - min(end for _, end in sessions)
    return [
        _Lack(reason=reason, share=min(1.0, gap / length), text=f"{gap / 1e9:.3f} s of {length / 1e9:.3f} s")
        for reason, gap in ((Incomplete.GAP_HEAD, head), (Incomplete.GAP_TAIL, tail))
        if gap > SLACK_NS
    ]
