"""
The sessions that a driver begins on a profiler outside its hands: an inference server's, or an engine's.

Owns whose a session is: it is ended once, by whoever began it, whatever became of the call that did; only then does
the next one begin, and its traces are looked for. What is asked, and what an answer means, is the driver's. Leaves
files to ``traces``.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from stepscope import apart
from stepscope.complaints import complaints
from stepscope.errors import StepscopeError
from stepscope.profilers import Armed, LostError, NoArtifactError, Recording, Request
from stepscope.profilers.traces import Drop, discard

START_DEADLINE = 10.0
"""Seconds: a worker's first start imports parts of torch for two or three, between two batches."""

STOP_DEADLINE = 24.0
"""Seconds for the workers to write their traces; with what follows it stays within the recorder's deadline of 30."""

FILE_DEADLINE = 4.0
"""Seconds until the trace is there after the answer; shared file systems show it late."""

MAX_PREFIX = 128
"""Characters that vLLM takes for a prefix."""

NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
"""What vLLM refuses in a prefix."""

Call = Coroutine[Any, Any, None]


class UnansweredError(StepscopeError):
    """
    No answer will come, or none that tells: what was asked may have been done, or not, or in part.
    """


class Sessions:
    """
    Those of one driver, one at a time. Not for several tasks at once.

    A start that raises anything but a ``TimeoutError`` or an :class:`UnansweredError` has begun nothing.
    """

    def __init__(
        self,
        what: str,
        *,
        stop: Callable[[], Call],
        undo: Callable[[], Call],
        file_deadline: float,
        start_deadline: float | None = None,
        stop_deadline: float | None = None,
        anywhere: bool = False,
        again: bool = False,
    ) -> None:
        """
        ``stop`` ends the session of a window, ``undo`` one whose window is over already, on ``what``.

        Calls without a deadline here have one of their own. ``anywhere``: an event loop may end with any call, and the
        session does not. ``again``: a session whose stop has failed counts as on, so another stop follows.
        """
        self.unsettled = ""
        """The window whose session may still be on: nobody has answered its stop."""
        self._what = what
        self._stop, self._undo = stop, undo
        self._start_deadline, self._stop_deadline, self._file_deadline = start_deadline, stop_deadline, file_deadline
        self._anywhere, self._again = anywhere, again
        self._drop: Drop | None = None
        self._refused: Drop | None = None
        self._settling: asyncio.Task[None] | None = None

    async def begin(
        self, request: Request, *, level: str, drop: Callable[[], Drop], start: Callable[[Drop], Call]
    ) -> Armed:
        """
        End what is left over of ours, and begin the session of a window: ``start`` it with its traces going to a
        ``drop``, which is made as late as that, so that it knows the traces that are none of its own.

        ``level`` is the one that it records at.
        """
        await self._free()
        place = drop()
        await self._begin(place, start(place))
        return Armed(level=level, fallback=request.level if request.level != level else "", marks=False)

    async def end(self, request: Request, *, keep: bool, settled: bool = True) -> Recording:
        """
        Stop the session, once, and bring its traces home, or leave word where they are.

        ``settled``: all are written when the stop is answered.
        """
        drop, self._drop = self._drop, None
        if drop is None:
            raise NoArtifactError(f"no session was started on the {self._what}")
        self.unsettled = drop.prefix
        asked = asyncio.ensure_future(self._stop())
        try:
            await self._answered("stop", asked, self._stop_deadline)
        except (Exception, asyncio.CancelledError) as error:
            if self._again or not asked.done() or isinstance(error, asyncio.CancelledError):
                self._later(self._see_through(asked, drop))
            else:
                self._unstopped(drop, error)
            raise
        self.unsettled = ""
        found = await drop.arrived(seconds=self._file_deadline, settled=settled)
        # Tables of what the traces hold too.
        discard([*drop.beside(), *([] if keep else found)])
        if keep and not found:
            raise NoArtifactError(
                f"the {self._what} says it stopped, but there is no trace {drop.prefix}* in {drop.folder}: it "
                "writes elsewhere, could not write, or its profiler had failed to start (its log says so)"
            )
        artifact = drop.bring_home(found, request.folder) if keep else ""
        drop.vacate()
        return Recording(artifact=artifact)

    async def _free(self) -> None:
        """
        End what is left over of ours; returns when nothing of it is on any more, as far as this event loop knows.

        Raises:
            TimeoutError: it takes longer than a start may.
        """
        # Of a window that nobody closed, or whose stop was refused.
        left, self._drop, self._refused = self._drop or self._refused, None, None
        if left is not None:
            self._later(self._end(left))
        if self._settling is None or self._settling.get_loop() is not asyncio.get_running_loop():
            return
        done, _ = await asyncio.wait({self._settling}, timeout=self._start_deadline)
        if not done:
            raise TimeoutError(f"the {self._what} is still busy with the profile of an earlier window")
        self._settling = None

    async def _begin(self, drop: Drop, start: Call) -> None:
        asked = asyncio.ensure_future(start)
        try:
            await self._answered("start", asked, self._start_deadline)
        except asyncio.CancelledError:
            self._later(self._take_back(asked, drop))
            raise
        except (TimeoutError, UnansweredError):
            undoing = self._later(self._take_back(asked, drop))
            if self._anywhere:
                await asyncio.wait({undoing})
            raise
        except Exception:
            drop.vacate()
            raise
        self._drop, self.unsettled = drop, ""

    async def _answered(self, what: str, asked: asyncio.Task[None], deadline: float | None) -> None:
        """
        Wait for the answer. What was asked goes its way, whatever becomes of whoever waits.
        """
        try:
            async with asyncio.timeout(deadline):
                await asyncio.shield(asked)
        except TimeoutError:
            if deadline is None:
                raise
            raise TimeoutError(f"the {self._what} has not answered the {what} within {deadline:g} s") from None

    async def _take_back(self, asked: asyncio.Task[None], drop: Drop) -> None:
        """
        Nobody waits for the start any more, and nobody else would ever stop what it may begin: undo it.
        """
        try:
            await asked
        except (TimeoutError, UnansweredError):
            pass
        except asyncio.CancelledError:
            if self._anywhere:
                apart.leave(self._end(drop))
            raise
        except Exception:  # noqa: BLE001 - refused, in whatever way: what is on is somebody else's
            drop.vacate()
            return
        await self._end(drop)

    async def _see_through(self, asked: asyncio.Task[None], drop: Drop) -> None:
        """
        Nobody waits for the stop any more; its window is over, so the traces are nobody's.
        """
        try:
            await asked
        except Exception as error:  # noqa: BLE001 - of a window that has been told, or was given up
            if self._again:
                await self._end(drop)
            else:
                self._unstopped(drop, error)
            return
        self._ended(drop)

    def _unstopped(self, drop: Drop, error: BaseException) -> None:
        """
        A stop that was refused is tried again before the next session: at once it would be refused like the first.
        """
        if not isinstance(error, TimeoutError | LostError):
            self._refused = drop

    async def _end(self, drop: Drop) -> None:
        self.unsettled = drop.prefix
        try:
            await self._undo()
        except Exception as error:  # noqa: BLE001 - whatever ails the profiler, its next window says so
            complaints.warn(f"undo:{self._what}", "the profiler of the %s may have been left on: %s", self._what, error)
            return
        self._ended(drop)

    def _ended(self, drop: Drop) -> None:
        self.unsettled = ""
        discard([*drop.found(), *drop.beside()])
        drop.vacate()

    def _later(self, work: Call) -> asyncio.Task[None]:
        self._settling = asyncio.ensure_future(work)
        return self._settling


def prefix(request: Request) -> str:
    """
    What the traces of a window are called, as servers and engines take it.
    """
    return NOT_PLAIN.sub("-", request.window)[-MAX_PREFIX:].lstrip("._-")
