"""
Which launches onto an accelerator have left a trace of what they ran, and where those are that have not.

Owns what a launch is in a Kineto trace. The tie is the correlation id, which counts the calls of a process upwards. A
call that launches and nothing on the device with its id is a loss of the profiler's: CUDA drops kernels at the start of
a session, and when its buffers are full. No loss are: calls that do nothing on a device; copies and fills, which of no
bytes do nothing either; calls that were captured into a graph; and device work whose call came before the recording.
All work of one graph launch has one id, so such a launch counts once and is there if any of its work is.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stepscope_sidecar.artifacts.numbers import Numbers

CALLS = frozenset({"cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver", "Runtime"})
"""Categories of calls on the host; ROCm has CUDA's, and the last is of before 2022-05."""

DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
"""Categories of work on the device; the last three are of before 2022-05."""

MAX_CAPTURES = 100_000
"""Beginnings and ends of graph captures that are kept; an engine that captures all its batch sizes has thousands."""

NEAR = 0.9
"""The part of what is missing that must lie at one end for the loss to be there: streams do not run in one order."""

END = sys.maxsize


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """
    Launches, those of them without a trace on the device, and where these are: ``head``, ``tail`` or "".
    """

    count: int = 0
    missing: int = 0
    where: str = ""

    @property
    def share(self) -> float:
        """
        The part that is missing, from 0 to 1.
        """
        return self.missing / self.count if self.count else 0.0


class Launches:
    """
    What is learned of launches, event by event, in whatever order; memory is bounded.
    """

    def __init__(self) -> None:
        self._launched: dict[object, Numbers] = {}
        self._seen = Numbers()
        self._captures: dict[object, list[tuple[int, bool]]] = {}
        self._kept = 0

    def add(self, event: Mapping[str, object]) -> None:
        """
        Take in an event of one of the categories above.
        """
        arguments = event.get("args")
        number = arguments.get("correlation") if isinstance(arguments, dict) else None
        if not isinstance(number, int) or not 0 < number < END:
            return
        if event["cat"] in DEVICE:
            self._seen.add(number)
            return
        name, thread = event.get("name"), event.get("tid")
        if not isinstance(name, str):
            return
        if "Launch" in name and "HostFunc" not in name:
            self._launched.setdefault(str(thread), Numbers()).add(number)
        elif name.endswith(("Capture", "Capture_v2", "CaptureToGraph")) and self._kept < MAX_CAPTURES:
            self._kept += 1
            self._captures.setdefault(str(thread), []).append((number, "Begin" in name))

    def found(self) -> Launched:
        """
        The whole, once all events are in; nothing where there were too many to keep.
        """
        launched = Numbers()
        for thread, numbers in self._launched.items():
            last = 0
            for begin, end in _captured(self._captures.get(thread, [])):
                launched.update(numbers, between=(last, begin))
                last = end
            launched.update(numbers, between=(last, END))
        missing = launched.without(self._seen)
        if missing.full:
            return Launched()
        count, lost = len(launched), len(missing)
        return Launched(count=count, missing=lost, where=_where(launched, missing, count, lost))


def _captured(marks: list[tuple[int, bool]]) -> Iterator[tuple[int, int]]:
    """
    The ids at which captures of one thread begin and end; one may have begun before the recording, or end after it.
    """
    begin: int | None = 0 if marks and not min(marks)[1] else None
    for number, begins in sorted(marks):
        if begins:
            begin = number if begin is None else begin
        elif begin is not None:
            yield begin, number
            begin = None
    if begin is not None:
        yield begin, END


def _where(launched: Numbers, missing: Numbers, count: int, lost: int) -> str:
    if lost in {0, count}:
        return ""
    head = tail = 0
    for place, number in enumerate(launched):
        if number in missing:
            head += place < lost
            tail += place >= count - lost
    if head >= NEAR * lost:
        return "head"
    return "tail" if tail >= NEAR * lost else ""
