"""
Asking for a window: what is asked, what the sidecar's yes needs before a profiler can start, and what a no means.

Owns the way from a request to something startable. Leaves whether to ask, and starting, to :mod:`stepscope.windows`.
"""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stepscope import recorder, wire
from stepscope.names import Reason
from stepscope.profilers import AnyProfiler, Registry, Request


@dataclass(frozen=True, slots=True)
class Asked:
    """
    The window that is wanted.
    """

    step: int
    param_version: int
    forced: bool
    late: bool
    roaming: bool = False
    """The close may come on another thread: any of a pool, or wherever it came the last time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """
    A window that may open, what is needed to start its profiler, and what asking cost.
    """

    asked: Asked
    grant: wire.Grant
    profiler: AnyProfiler
    request: Request
    stall: dict[str, float]


class Control(Protocol):
    """
    The way to the sidecar.
    """

    def ask(self, *, step: int, param_version: int, forced: bool) -> wire.Message | None:
        """
        Whether a window may open; ``None`` when nobody answered, which is then told to the next sidecar.
        """

    def miss(self, *, step: int, param_version: int, reason: str) -> None:
        """
        A window was denied without asking.
        """

    def tell(self, message: wire.Message) -> None:
        """
        Send ``message``, to the next sidecar if there is none now.
        """

    def metadata(self) -> Mapping[str, str]:
        """
        What every recording of this process says of its origin.
        """


def ask(
    asked: Asked, *, control: Control, profilers: Registry, rank: int, world_size: int | None
) -> Granted | wire.Ended | str:
    """
    Ask for a window. Answers with it, with why it cannot record although it was granted, or with why it was denied.
    """
    before = time.perf_counter()
    answer = control.ask(step=asked.step, param_version=asked.param_version, forced=asked.forced)
    stall = {"open": time.perf_counter() - before}
    if not isinstance(answer, wire.Grant):
        return answer.reason if isinstance(answer, wire.Deny | wire.Refused) else Reason.SIDECAR_LOST
    profiler = profilers.find(answer.tool)
    if profiler is None:
        why = f"this process has no profiler {answer.tool!r}"
        return recorder.ended(answer.window, Reason.TOOL_UNAVAILABLE, why, stall)
    folder = Path(answer.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return recorder.ended(answer.window, Reason.START_ERROR, recorder.detail(error), stall)
    with contextlib.suppress(OSError):
        # Needed only where both ends are killed in the next moments.
        (folder / wire.GRANTED).write_bytes(wire.encode(answer))
    request = Request(
        window=answer.window,
        level=answer.level,
        folder=folder,
        roaming=asked.roaming,
        rank=rank,
        world_size=world_size,
    )
    return Granted(asked=asked, grant=answer, profiler=profiler, request=request, stall=stall)
