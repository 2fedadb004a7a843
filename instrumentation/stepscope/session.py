"""
Everything that one registered process has: its state, its spans, its boundary calls, its agent.

Owns how they are put together and how they end. There is one in a process at most; :mod:`stepscope.sdk` holds it.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from opentelemetry.sdk.trace import ReadableSpan

from stepscope.boundary import Boundary
from stepscope.complaints import complaints
from stepscope.driven import Driven
from stepscope.flow import Flow, adrive, drive
from stepscope.handle import Span
from stepscope.names import Reason
from stepscope.seam import AgentSeam, Identity
from stepscope.settings import Settings
from stepscope.spans import Spans
from stepscope.steptimes import Timings
from stepscope.turn import Turn
from stepscope.version import StepState


class Sink(Protocol):
    """
    Where finished spans go.
    """

    def __call__(self, span: ReadableSpan) -> None:
        """
        Take ``span`` on the thread that ended it; must not block.
        """

    def shutdown(self, timeout: float) -> None:
        """
        Deliver what is left within ``timeout`` seconds.
        """


class Session:
    """
    A process of the run, from ``init()`` to ``shutdown()``.
    """

    span_type = Span
    """Reached through the session, so that importing :mod:`stepscope.sdk` does not import the OpenTelemetry SDK."""

    def __init__(
        self,
        *,
        settings: Settings,
        identity: Identity,
        agent: AgentSeam,
        sink: Sink,
        hurry: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """
        ``hurry`` asks for what has finished to be delivered without waiting for more.
        """
        self.identity = identity
        self.agent = agent
        self.hurry = hurry
        self.calls = False
        """Whether it has called others, which may end with it."""
        self.timings = Timings(stall=agent.take_stall)
        self._sink = sink
        self.pid = os.getpid()
        self.state = StepState(param_version=identity.param_version, total_steps=identity.total_steps)
        self.spans = Spans(
            settings=settings,
            identity=identity,
            moment=self.state.now,
            windows=agent.windows,
            selected=agent.records,
            sink=self._finished,
        )
        self.boundary = Boundary(
            identity=identity,
            state=self.state,
            spans=self.spans,
            agent=agent,
            stop_after=settings.stop_after,
            completed=self.timings.completed,
            clock=clock,
        )
        self._turn = Turn()
        self.driven = Driven(boundary=self.boundary, state=self.state, windows=agent.windows, turn=self._turn)
        self._ending = threading.Lock()
        self._closer: int | None = None
        self._ended = threading.Event()
        self._left = False

    def _finished(self, span: ReadableSpan) -> None:
        self.timings.spent(span)
        self._sink(span)

    def drive(self, flow: Flow) -> None:
        """
        Carry out a boundary call on this thread, after the one that is under way.
        """
        drive(flow, self.agent.windows, self._turn)

    async def adrive(self, flow: Flow, *, begins: bool = False) -> None:
        """
        The same in a coroutine. What ``begins`` something is dropped where it is cancelled before its turn.
        """
        await adrive(flow, self.agent.windows, self._turn, begins=begins)

    async def leave(self) -> None:
        """
        End what is open, also where only a coroutine can stop the profiler. :meth:`close` does the rest.
        """
        if not self._left:
            self._left = True
            await self.adrive(self.boundary.exit(reason=Reason.PROCESS_EXIT))

    def close(self, *, reason: Reason = Reason.PROCESS_EXIT, timeout: float) -> None:
        """
        End what is open, deliver what is left and let the agent go; for ``timeout`` seconds at most, beyond the
        profiler's own stop. A second call only waits for the first one, as long: it may be about to end the process.
        """
        if not self._ending.acquire(blocking=False):
            if self._closer != threading.get_ident():
                self._ended.wait(timeout)
            return
        try:
            self._closer = threading.get_ident()
            self._close(reason, deadline=time.monotonic() + timeout)
        finally:
            self._ended.set()

    def _close(self, reason: Reason, *, deadline: float) -> None:
        if not self._left:
            # Most of the time is for what is left to deliver.
            patience = max(0.0, (deadline - time.monotonic()) / 4)
            drive(self.boundary.exit(reason=reason), self.agent.windows, self._turn, patience=patience)
        self.spans.silence()
        try:
            # The agent needs a moment of what is left to say goodbye.
            self._sink.shutdown(max(0.0, (deadline - time.monotonic()) * 0.8))
        except Exception as error:  # noqa: BLE001 - leaving must not fail
            complaints.fault("shutdown of export", error)
        try:
            self.agent.close(max(0.1, deadline - time.monotonic()))
        except Exception as error:  # noqa: BLE001 - leaving must not fail
            complaints.fault("shutdown of agent", error)

    def forget(self) -> None:
        """
        Go inert: this is a forked child, and everything here belongs to its parent.
        """
        self.spans.silence()
