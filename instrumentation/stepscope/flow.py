"""
A boundary call written once for both worlds: a generator that yields what is to be done to the window.

Profilers of engines start and stop in coroutines, those in the process do not. :func:`drive` does it here and now,
:func:`adrive` awaits it; the order of things is the generator's alone. Flows of a process go in turn: a stop, or an
update, that comes while an engine starts finds it started.
"""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass

from stepscope import interrupts
from stepscope.complaints import complaints
from stepscope.seam import WindowsSeam
from stepscope.turn import Turn

PATIENCE = 32.0
"""Seconds that a flow waits for its turn: an engine's start or stop takes 30 at most, and the request for it 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """
    Ask for a window and start its profiler. The answer is whether it records.
    """

    step: int
    param_version: int
    forced: bool = False
    late: bool = False
    roaming: bool = False
    """The close is a call of its own and may come on any thread of a pool."""

    def now(self, windows: WindowsSeam) -> bool:
        """
        Do it on this thread.
        """
        return windows.open(
            step=self.step,
            param_version=self.param_version,
            forced=self.forced,
            late=self.late,
            roaming=self.roaming,
        )

    async def later(self, windows: WindowsSeam) -> bool:
        """
        Await it.
        """
        return await windows.aopen(
            step=self.step,
            param_version=self.param_version,
            forced=self.forced,
            late=self.late,
            roaming=self.roaming,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Closing:
    """
    Stop what records. The answer means nothing.
    """

    version: int
    reason: str
    incomplete: str = ""

    def now(self, windows: WindowsSeam) -> bool:
        """
        Do it on this thread.
        """
        windows.close(version=self.version, reason=self.reason, incomplete=self.incomplete)
        return False

    async def later(self, windows: WindowsSeam) -> bool:
        """
        Await it.
        """
        await windows.aclose(version=self.version, reason=self.reason, incomplete=self.incomplete)
        return False


Flow = Generator[Opening | Closing, bool, None]


def drive(flow: Flow, windows: WindowsSeam, turn: Turn | None = None, *, patience: float | None = None) -> None:
    """
    Run ``flow`` on this thread, in its ``turn`` or after ``patience`` seconds without it. Raises nothing of ours.

    Signals wait until it is through: half a boundary would leave a window open into the next step. What their handlers
    raise is raised then.
    """
    with interrupts.held():
        # On an event loop whoever has the turn may be waiting for this very thread.
        taken = turn is not None and turn.take(0.0 if on_loop() else PATIENCE if patience is None else patience)
        try:
            _drive(flow, windows)
        finally:
            if turn is not None and taken:
                turn.give()


def on_loop() -> bool:
    """
    Whether an event loop runs on this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _drive(flow: Flow, windows: WindowsSeam) -> None:
    try:
        effect = next(flow)
        while True:
            try:
                answer = effect.now(windows)
            except BaseException as error:  # noqa: BLE001 - a profiler's trouble must not reach the training loop
                if not isinstance(error, Exception) or interrupts.theirs(error):
                    # The flow puts things in order and raises it again.
                    effect = flow.throw(error)
                    continue
                complaints.fault("window", error)
                answer = False
            effect = flow.send(answer)
    except StopIteration:
        return
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the training loop
        complaints.fault("boundary", error)


async def adrive(flow: Flow, windows: WindowsSeam, turn: Turn | None = None, *, begins: bool = False) -> None:
    """
    Run ``flow``, awaiting its ``turn`` and what it asks for. A cancellation passes through it and on, and so does what
    the handler of a signal raises: others run meanwhile, so that signals cannot wait. One that ``begins`` something is
    not run at all where it was cancelled before its turn.
    """
    taken, cancelled = False, None
    try:
        taken = turn is not None and await turn.atake(PATIENCE)
    except asyncio.CancelledError as error:
        if begins:
            flow.close()
            raise
        # What the boundary means for the process's place holds all the same; only, nothing is opened any more.
        cancelled = error
    try:
        await _adrive(flow, windows, cancelled)
    finally:
        if turn is not None and taken:
            turn.give()


async def _adrive(flow: Flow, windows: WindowsSeam, cancelled: BaseException | None) -> None:
    try:
        effect = next(flow)
        while True:
            try:
                if cancelled is not None and isinstance(effect, Opening):
                    raise cancelled
                answer = await effect.later(windows)
            except BaseException as error:  # noqa: BLE001 - a profiler's trouble must not reach the training loop
                if not isinstance(error, Exception) or interrupts.theirs(error):
                    # The flow puts things in order and raises it again.
                    effect = flow.throw(error)
                    continue
                complaints.fault("window", error)
                answer = False
            effect = flow.send(answer)
    except StopIteration:
        if cancelled is not None:
            raise cancelled from None
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the training loop
        complaints.fault("boundary", error)
