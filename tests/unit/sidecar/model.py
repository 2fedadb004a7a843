"""
Processes as the sidecar meets them, without any process: each follows the protocol, and what lies between them and the
controller loses, repeats and reorders messages, and is cut.

What a profiler does is known here for certain, so that it can be held against what the controller believes.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stepscope import wire
from stepscope.names import Reason
from stepscope_sidecar.processes import Process

from .rig import SPAN, TRACE, FakeLink, Rig, closed, reopened, started

FIRST, LAST = 8, 11
"""The steps that there are."""

KEPT = (wire.Closed, wire.Ended, wire.Missed)
"""What a process tells the next sidecar when it could not tell this one."""


@dataclass(eq=False)
class ModelAgent:
    """
    One process that follows the protocol.
    """

    rig: Rig
    pid: int
    facts: Mapping[str, object]
    link: FakeLink | None = None
    process: Process | None = None
    step: int = FIRST
    asking: bool = False
    """It has asked and waits; the real one waits for a second."""
    abandoned: bool = False
    """It has asked, and has given the answer up."""
    window: str = ""
    """The window that its profiler records now."""
    opened: int = 0
    """The step at its opening."""
    announced: bool = False
    read: int = 0
    outgoing: deque[wire.Message] = field(default_factory=deque)
    echoes: bool = False
    """Whether the network repeats everything."""
    kept: list[wire.Message] = field(default_factory=list)
    asked: set[int] = field(default_factory=set)
    """Steps whose window it asked for, or told to have missed, in messages that arrived."""
    recorded: set[str] = field(default_factory=set)
    """Windows whose recording lies on the disk."""

    @property
    def alive(self) -> bool:
        """
        Whether the process lives.
        """
        return self.pid not in self.rig.dead

    # What it does ------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """
        Register, listing what is open, then tell what could not be told.
        """
        if self.link is not None or not self.alive:
            return
        listed = []
        if self.window:
            trace = TRACE if self.announced else ""
            listed = [replace(reopened(self.window, self.opened), trace_id=trace, last_step=self.step)]
        self.process, self.link = self.rig.register(self.pid, self.facts, open_windows=listed)
        self.read = 0
        self.outgoing.extend(self.kept)
        self.kept.clear()

    def cut(self) -> None:
        """
        The connection ends: what was under way is lost, and what must be known is told to the next sidecar.
        """
        link, self.link = self.link, None
        if link is None or self.process is None:
            return
        self.kept.extend(message for message in self.outgoing if isinstance(message, KEPT))
        self.outgoing.clear()
        if self.asking or self.abandoned:
            self._miss(self.step)
        self.asking = self.abandoned = False
        if self.process.link is link:
            self.rig.controller.unlinked(self.process, link)

    def enter(self, *, forced: bool) -> None:
        """
        Enter the step, and ask for its window.
        """
        if not self.alive or self.window or self.asking or self.abandoned:
            return
        self._send(wire.Version(step=self.step, param_version=self.step - 1))
        if self.link is None:
            self._miss(self.step)
            return
        self.asking = True
        self._send(wire.Open(id=self.step, step=self.step, param_version=self.step - 1, forced=forced))

    def give_up(self) -> None:
        """
        The answer has not come in time: the step begins without a window.
        """
        if self.asking:
            self.asking, self.abandoned = False, True

    def hear(self, *, fails: bool) -> None:
        """
        Act on what the controller said since the last time; a profiler that is to start may fail.
        """
        if self.link is None or not self.alive:
            return
        news, self.read = self.link.sent[self.read :], len(self.link.sent)
        for message in news:
            if isinstance(message, wire.Grant):
                self._granted(message, fails=fails)
            elif isinstance(message, wire.Deny | wire.Refused):
                self.asking = self.abandoned = False
            elif isinstance(message, wire.Stop) and message.window == self.window:
                self.close(message.reason)

    def begin(self) -> None:
        """
        The span of the step has begun: say that the window records.
        """
        if self.alive and self.window and not self.announced:
            self.announced = True
            self._send(started(self.window))

    def close(self, reason: str) -> None:
        """
        Stop the profiler: first the recording and its record, then the message.
        """
        if not self.alive or not self.window:
            return
        self.begin()
        window, self.window, self.announced = self.window, "", False
        record = replace(closed(window, reason), last_step=self.step)
        self.rig.records[window] = record
        self.recorded.add(window)
        self._send(record)

    def fail(self, reason: Reason) -> None:
        """
        The profiler fails to stop: there is no recording.
        """
        if self.alive and self.window:
            window, self.window, self.announced = self.window, "", False
            self._send(wire.Ended(window=window, state="failed", reason=reason))

    def go_on(self) -> None:
        """
        The step ends, and the window goes on into the next one.
        """
        if self.alive and self.window and self.step < LAST:
            self.begin()
            self._send(wire.StepClosed(step=self.step, param_version=self.step))
            self.step += 1
            self._send(wire.Version(step=self.step, param_version=self.step - 1))
            self._send(wire.Continued(window=self.window, step=self.step, trace_id=TRACE, span_id=SPAN))

    def boundary(self) -> None:
        """
        The step ends.
        """
        if not self.alive or self.asking:
            return
        self.close(Reason.BOUNDARY)
        self._send(wire.StepClosed(step=self.step, param_version=self.step))
        # Four steps, over and over: a loop that trains a step again is a duplicate, and has no second window.
        self.step = self.step + 1 if self.step < LAST else FIRST

    def opens(self, *, waits: bool = True, fails: bool = False) -> None:
        """
        Enter the step and record it; unless the answer takes too long, or the profiler fails to start.
        """
        self.connect()
        self.enter(forced=False)
        self.arrive()
        if not waits:
            self.give_up()
        self.hear(fails=fails)
        self.begin()
        self.arrive()

    def ends(self) -> None:
        """
        End the step, without any trouble.
        """
        self.boundary()
        self.arrive()

    def stray(self, other: "ModelAgent") -> None:
        """
        Say something about the window of another process, which is none of its business.
        """
        if self.process is not None and self.link is not None and self.alive and other.window:
            for message in (closed(other.window), wire.Ended(window=other.window, state="failed", reason="stop_error")):
                self.rig.controller.handle(self.process, message)

    def greedy(self) -> None:
        """
        Ask for the window of the next step, whatever is open.
        """
        if self.process is not None and self.link is not None and self.alive:
            self.rig.controller.handle(self.process, wire.Open(id=0, step=self.step + 1, param_version=self.step))

    def leave(self) -> None:
        """
        The process ends in order.
        """
        if self.alive:
            self.give_up()
            self.close(Reason.PROCESS_EXIT)
            self._send(wire.Bye())
            self.arrive()
            self.kill()

    def kill(self) -> None:
        """
        The process is killed: nothing that is under way arrives.
        """
        if not self.alive:
            return
        self.rig.dead.add(self.pid)
        self.asking = self.abandoned = self.announced = False
        self.window = ""
        self.outgoing.clear()
        self.kept.clear()
        if self.process is not None:
            self.rig.controller.gone(self.process)
        self.link = None

    # What lies between -------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """
        All that is under way arrives.
        """
        while self.outgoing and self.link is not None:
            self.deliver()

    def deliver(self) -> None:
        """
        The oldest message arrives.
        """
        if self.outgoing and self.process is not None and self.link is not None:
            message = self.outgoing.popleft()
            if isinstance(message, wire.Open | wire.Missed):
                self.asked.add(message.step)
            for _ in range(2 if self.echoes else 1):
                self.rig.controller.handle(self.process, message)

    def echo(self) -> None:
        """
        From now on every message arrives twice, or no longer.
        """
        self.echoes = not self.echoes

    def swap(self) -> None:
        """
        Two messages overtake each other.
        """
        if len(self.outgoing) > 1:
            first, second = self.outgoing.popleft(), self.outgoing.popleft()
            self.outgoing.extendleft([first, second])

    # Inside ------------------------------------------------------------------------------------------------------

    def _granted(self, grant: wire.Grant, *, fails: bool) -> None:
        in_time, self.asking, self.abandoned = self.asking and not self.window, False, False
        if not in_time:
            self._send(wire.Ended(window=grant.window, state="expired", reason=Reason.GRANT_TOO_LATE))
        elif fails:
            self._send(wire.Ended(window=grant.window, state="failed", reason=Reason.START_ERROR))
        else:
            self.window, self.opened = grant.window, self.step

    def _miss(self, step: int) -> None:
        message = wire.Missed(step=step, param_version=step - 1, reason=Reason.SIDECAR_LOST, unix_ns=1)
        self.kept.append(message)

    def _send(self, message: wire.Message) -> None:
        if self.link is not None:
            self.outgoing.append(message)
        elif isinstance(message, KEPT):
            self.kept.append(message)
