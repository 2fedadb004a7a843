"""
One run of a tool, from the beginning of a window's step to the file that it leaves.

Owns its course: the process it is meant for is the right one, the tool records, the window or the process ends, the
tool has ended. Which runs there are, and what is finalised, is in ``attachments``.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from stepscope import wire
from stepscope.names import Reason
from stepscope_sidecar.attach import leftovers
from stepscope_sidecar.attach.driver import Driver
from stepscope_sidecar.attach.target import Target
from stepscope_sidecar.attach.tools import AttachedTool
from stepscope_sidecar.errors import AttachError
from stepscope_sidecar.windows import Window

TOLD = 10.0
"""Seconds for the control loop to learn that a process has ended whose tool has noticed."""


class Recordings(Protocol):
    """
    The windows, as this module changes them.
    """

    def add(self, window: Window) -> bool:
        """
        Hold a window that no process asked for, unless there is one for the same step, rank and tool.
        """

    def deny(self, window: Window, reason: str, detail: str = "") -> None:
        """
        Note one that does not open.
        """

    def holder(self, devices: Iterable[str]) -> Window | None:
        """
        The window that records one of ``devices`` now.
        """

    def records(self, message: wire.Started) -> None:
        """
        The tool records.
        """

    def recorded(self, record: wire.Closed) -> None:
        """
        A window that no process asked for is over.
        """

    def halt(self, window_id: str, reason: Reason) -> None:
        """
        It is to end now.
        """

    def broken(self, window_id: str, reason: Reason, detail: str) -> None:
        """
        The tool failed.
        """

    def lost(self, window_id: str, reason: Reason) -> None:
        """
        Its process has gone.
        """


@dataclass(kw_only=True, eq=False, slots=True)
class Capture:
    """
    One run of a tool, from the beginning of the window's step to the file that it leaves.
    """

    window: Window
    """As it was when the run was wanted."""
    tool: AttachedTool
    pid: int
    folder: Path
    message: wire.Started
    """What the process said when its step began; for a process beside it, what is to be said."""
    opened_unix_ns: int = 0
    """When the tool began to record; 0 while it does not."""
    record: wire.Closed | None = None
    """What is to be finalised, once the window is over."""
    trouble: AttachError | None = None
    """What the tool said at its end, where its process had ended too: of importance if it has left nothing."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    @property
    def name(self) -> str:
        """
        The tool's name.
        """
        return self.tool.name.value

    @property
    def too_short(self) -> str:
        """
        Why there is no recording of a window that ended before the tool recorded.
        """
        return f"the step was over before {self.name} recorded"


async def drive(capture: Capture, windows: Recordings, *, unix_ns: Callable[[], int]) -> None:
    """
    Run the tool of ``capture`` until its window is over, and come back when it has ended.

    Raises:
        AttachError: it could not be started or stopped; the message says why.
    """
    if capture.over.is_set():
        return
    target = Target.open(capture.pid, start=capture.window.process_start)
    try:
        if why := capture.tool.obstacle(capture.pid):
            raise AttachError(f"{capture.name} cannot record {why}", reason=Reason.START_ERROR)
        try:
            capture.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AttachError(f"the window's folder cannot be made: {error}", reason=Reason.START_ERROR) from None
        script = capture.tool.script(capture.pid, folder=capture.folder)
        driver = await Driver.spawn(script, cwd=capture.folder)
        try:
            leftovers.note(capture.folder, driver.pid)
            await _record(capture, driver, target, windows=windows, unix_ns=unix_ns)
        finally:
            await driver.close()
            leftovers.forget(capture.folder)
    finally:
        target.close()


async def _record(
    capture: Capture, driver: Driver, target: Target, *, windows: Recordings, unix_ns: Callable[[], int]
) -> None:
    try:
        if not await _before(capture.over, driver.begin()):
            return
        capture.opened_unix_ns = unix_ns()
        windows.records(replace(capture.message, opened_unix_ns=capture.opened_unix_ns))
        if not await _before(capture.over, driver.ended()):
            await driver.stop()
            return
    except AttachError as error:
        if not await target.ends_soon():
            raise
        if capture.over.is_set():
            capture.trouble = error
            return
    if not await target.ends_soon():
        why = f"{capture.name} ended by itself: {driver.last_words()}"
        raise AttachError(why, reason=Reason.STOP_ERROR)
    # What it had recorded until its process ended, it has written. The rest is for whoever watches the process.
    if capture.window.beside:
        windows.lost(capture.window.window, Reason.PROCESS_LOST)
    else:
        await _before(capture.over, asyncio.sleep(TOLD))


async def _before(over: asyncio.Event, work: Coroutine[object, object, object]) -> bool:
    """
    Do ``work`` until ``over`` is set; whether it was done before.
    """
    doing, waiting = asyncio.ensure_future(work), asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait({doing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if not doing.done():
            doing.cancel()
        await asyncio.gather(doing, waiting, return_exceptions=True)
    if doing.cancelled():
        return False
    doing.result()
    return True
