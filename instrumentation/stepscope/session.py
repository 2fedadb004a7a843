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
from stepscope.flow import drive
from stepscope.handle import Span
from stepscope.names import Reason
from stepscope.seam import AgentSeam, Identity
from stepscope.settings import Settings
from stepscope.spans import Spans
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
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.identity = identity
        self.agent = agent
        self.pid = os.getpid()
        self.state = StepState(param_version=identity.param_version, total_steps=identity.total_steps)
        self.spans = Spans(
            settings=settings,
            identity=identity,
            moment=self.state.now,
            windows=agent.windows,
            selected=agent.selected,
            sink=sink,
        )
        self.boundary = Boundary(identity=identity, state=self.state, spans=self.spans, agent=agent, clock=clock)
        self._sink = sink
        self._ending = threading.Lock()

    def close(self, *, reason: Reason = Reason.PROCESS_EXIT, timeout: float) -> None:
        """
        End what is open, deliver what is left and let the agent go; for ``timeout`` seconds at most, beyond the
        profiler's own stop. A second call does nothing.
        """
        if not self._ending.acquire(blocking=False):
            return
        deadline = time.monotonic() + timeout
        drive(self.boundary.exit(reason=reason), self.agent.windows)
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
