"""
Windows and what follows from their changes: grants, deadlines, finalising, telling the process to stop.

Stands between the pure state machine (``windows``) and the controller, which owns processes and orders. Every change
goes through here once and is told to the ledger, so that what is kept is what happened.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stepscope import wire
from stepscope.names import Reason, State
from stepscope.paths import without_folders
from stepscope.settings import Settings
from stepscope_sidecar.jobs import Result
from stepscope_sidecar.origin import Origin
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.policy import NOT_OFFERED, Ask, Rules, decide
from stepscope_sidecar.processes import Process
from stepscope_sidecar.room import Room
from stepscope_sidecar.seams import Ledger, World
from stepscope_sidecar.windows import REASONS, Window, Windows

LOG = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds for processes to register again after a restart or a lost connection; they try every second."""

OPENING_LIMIT = 60.0
"""Seconds from a grant to the profiler running. A first start takes up to 2.7 s, on a machine short of CPU far more."""

MAX_DETAIL = 500
"""Characters of free text about a failure; the reason itself is from a closed list."""


class Recordings:
    """
    All windows of this node. Not thread-safe: the control loop owns it.
    """

    def __init__(self, settings: Settings, *, ledger: Ledger, world: World, node: str) -> None:
        """
        Begin without windows.
        """
        self.windows = Windows()
        self._settings = settings
        self._ledger = ledger
        self._world = world
        self._root = str(settings.directory.absolute())
        self._room = Room(left=world.disk_left, written=world.written, cap=settings.cap_bytes)
        self._origin = Origin(node=node, folder=str(settings.attempt_folder.relative_to(self._root)))
        self._deadlines: dict[str, float] = {}
        """When a window that is opening, or that no process has confirmed, is given up."""

    def resume(self, windows: Iterable[Window]) -> None:
        """
        Take over from a sidecar that ended: what was closed meanwhile is finalised, the rest has a time to come back.
        """
        for window in windows:
            if self.windows.get(window.window) or (window.leased and self._taken(window)):
                LOG.warning("window %s is one too many; leaving it alone", window.window)
                continue
            self.windows.put(window)
            if window.state is State.FINALISING:
                self._finalise(window, self._world.record(window))
            elif window.leased and not self.take_record(window):
                self._deadlines[window.window] = self._world.monotonic() + GRACE

    def open(self, process: Process, message: wire.Open, plan: Plan) -> None:
        """
        Answer a process that asks for a window. The answer goes first: the process waits for it.
        """
        window = self._origin.asked(process, message, plan=plan, unix_ns=self._world.unix_ns())
        window = replace(window, forced=message.forced)
        offers, left = self._world.attached.offers(), self._room.left(self.windows.leased())
        if window.tool in offers:
            window = replace(window, level="")
        tools = {**process.tools, **{tool: why for tool, why in offers.items() if tool in process.tools}}
        ask = Ask(
            step=message.step,
            role=process.role,
            rank=process.rank,
            process=process.identity,
            tool=window.tool,
            devices=process.devices,
            tools=tools,
            forced=message.forced,
        )
        rules = Rules(
            selection=plan.selection,
            ranks=plan.ranks,
            stopped=plan.stopped,
            overhead=self._world.overhead(process.role),
            max_overhead=self._settings.max_overhead,
            device_held=self._world.attached.holds(process.devices, process=process.identity),
            disk_left=left,
        )
        reason = decide(ask, rules, self.windows)
        if reason is not None:
            process.send(wire.Deny(id=message.id, reason=reason))
            self.deny(window, reason, tools.get(window.tool, NOT_OFFERED) if reason == Reason.TOOL_UNAVAILABLE else "")
            return
        caps = wire.Caps(
            seconds=self._settings.cap_seconds,
            bytes=self._room.grant(window, left=left),
            memory=self._settings.cap_memory,
        )
        self._deadlines[window.window] = self._world.monotonic() + OPENING_LIMIT
        window = self.windows.put(window)
        grant = wire.Grant(
            id=message.id,
            window=window.window,
            tool=window.tool,
            level=window.level,
            folder=f"{self._root}/{window.folder}",
            caps=caps,
            continuous=plan.continuous,
        )
        process.send(grant)
        self._told(window, before=None)

    def missed(self, process: Process, message: wire.Missed, plan: Plan) -> None:
        """
        A process denied itself a window while there was no sidecar to ask, or tells of one that another had denied it.
        """
        window = self._origin.asked(process, message, plan=plan, unix_ns=self._world.unix_ns())
        granted = self._taken(window)
        if granted is not None and granted.process == window.process:
            self.windows.ignored["missed"] += 1
            if granted.leased and message.reason == Reason.SIDECAR_LOST:
                # The grant did not reach it: this is how that window ended.
                self.give_up(granted, Reason.SIDECAR_LOST)
            return
        known = message.reason in REASONS
        self.deny(
            replace(window, asked_unix_ns=message.unix_ns),
            message.reason if known else Reason.SIDECAR_LOST,
            "" if known else message.reason,
        )

    def deny(self, window: Window, reason: str, detail: str = "") -> None:
        """
        Note a window that does not open. One that was asked for before is no further window (W3).
        """
        for other in self.windows.asked(window.key):
            again = other.process == window.process and reason == Reason.DUPLICATE
            if again or (other.state is State.DENIED and other.reason == reason):
                self.windows.ignored["asked again"] += 1
                return
        denied = replace(window, state=State.DENIED, reason=reason, detail=detail[:MAX_DETAIL], folder="")
        self._told(self.windows.put(denied), before=None)

    def started(self, process: Process, message: wire.Started) -> None:
        """
        A profiler runs. Where its window is over already, it is told to stop.
        """
        before = self._own(process, message.window, "started")
        if before is None:
            return
        if before.tool in self._world.attached.offers() and before.leased and not before.opened_unix_ns:
            # It records when its tool does.
            self._world.attached.started(before, message, pid=process.watch_pid)
            return
        if self._apply(before, self.windows.started(message)) is None and before.state.final:
            process.send(wire.Stop(window=message.window, reason=Reason.GRANT_TOO_LATE))
        self._deadlines.pop(message.window, None)

    def holder(self, devices: Iterable[str]) -> Window | None:
        """
        The window that records one of ``devices`` now.
        """
        return self.windows.holder(devices)

    def add(self, window: Window) -> bool:
        """
        Hold a window that no process asked for, unless there is one for the same step, rank and tool.
        """
        if self._taken(window) is not None:
            self.deny(window, Reason.DUPLICATE)
            return False
        self._told(self.windows.put(window), before=None)
        return True

    def records(self, message: wire.Started) -> None:
        """
        A tool that the sidecar runs records.
        """
        self._apply(self.windows.get(message.window), self.windows.started(message))
        self._deadlines.pop(message.window, None)

    def recorded(self, record: wire.Closed) -> None:
        """
        A tool that the sidecar runs has been stopped, in a window that no process asked for.
        """
        window = self.windows.get(record.window)
        if window is not None:
            self._close(window, record)

    def lost(self, window_id: str, reason: Reason) -> None:
        """
        The process of a window that no process asked for has gone.
        """
        window = self.windows.get(window_id)
        if window is not None and window.leased:
            self.give_up(window, reason)

    def halt(self, window_id: str, reason: Reason) -> None:
        """
        A window that no process asked for is to end now.
        """
        window = self.windows.get(window_id)
        if window is not None:
            self.stop(None, window, reason)

    def broken(self, window_id: str, reason: Reason, detail: str) -> None:
        """
        A tool that the sidecar runs could not be started or stopped, or left nothing.
        """
        window, detail = self.windows.get(window_id), detail[:MAX_DETAIL]
        if window is not None and window.state is State.FINALISING:
            self._apply(window, self.windows.failed(window_id, reason=reason, detail=detail))
        elif window is not None and window.leased:
            message = wire.Ended(window=window_id, state=State.FAILED, reason=reason, detail=detail)
            self._apply(window, self.windows.ended(message, unix_ns=self._world.unix_ns()))

    def continued(self, process: Process, message: wire.Continued) -> None:
        """
        A window goes on into the next step.
        """
        before = self._own(process, message.window, "continued")
        if before is None:
            return
        self._apply(before, self.windows.continued(message))

    def closed(self, process: Process, record: wire.Closed) -> None:
        """
        A process has written a raw recording.
        """
        before = self._own(process, record.window, "closed")
        if before is None:
            return
        self._close(before, record)

    def ended(self, process: Process, message: wire.Ended) -> None:
        """
        A granted window did not come to anything.
        """
        before = self._own(process, message.window, "ended")
        if before is None:
            return
        message = replace(message, detail=message.detail[:MAX_DETAIL])
        self._apply(before, self.windows.ended(message, unix_ns=self._world.unix_ns()))

    def finalised(self, result: Result) -> Window | None:
        """
        The finaliser is done with a window.
        """
        self._ledger.finalise_cpu(result.cpu_seconds)
        before = self.windows.get(result.window)
        if not result.ready:
            after = self.windows.failed(result.window, reason=result.reason, detail=result.detail)
        else:
            after = self.windows.ready(
                result.window,
                artifact=self._relative(result.artifact),
                size=result.bytes,
                sha256=result.sha256,
                complete=result.complete,
                incomplete_reason=result.incomplete_reason,
                incomplete_share=result.incomplete_share,
                detail=result.detail,
            )
        return self._apply(before, after)

    def stop(self, process: Process | None, window: Window, reason: Reason) -> bool:
        """
        Tell the process to close ``window`` now; whether that had not been done before.
        """
        changed = self._apply(window, self.windows.stopping(window.window, reason=reason)) is not None
        if process is not None:
            process.send(wire.Stop(window=window.window, reason=reason))
        return changed

    def confirm(self, process: Process, listed: list[wire.OpenWindow]) -> None:
        """
        A process has registered (again): what it lists is open, whatever else it had is over.
        """
        ids = {item.window for item in listed}
        for window in self.windows.leased(process=process.identity):
            if window.window in ids or self.take_record(window):
                continue
            if listed:
                self.give_up(window, Reason.SIDECAR_LOST)
            else:
                self._deadlines[window.window] = self._world.monotonic() + GRACE
        for item in listed:
            before = self.windows.get(item.window)
            after = self._apply(before, self.windows.adopt(self._origin.reopened(process, item)))
            if after is None:
                if before is None or before.state.final:
                    LOG.warning("window %s of pid %d is over already; stopping it", item.window, process.pid)
                    process.send(wire.Stop(window=item.window, reason=Reason.SIDECAR_LOST))
                continue
            self._deadlines.pop(item.window, None)
            if after.state is State.CLOSING:
                process.send(wire.Stop(window=item.window, reason=after.reason))

    def give_up(self, window: Window, reason: Reason) -> None:
        """
        Nobody will close ``window`` any more. What its process had closed before is finalised all the same.
        """
        if not self.take_record(window):
            self._apply(window, self.windows.lost(window.window, reason=reason, unix_ns=self._world.unix_ns()))

    def take_record(self, window: Window) -> bool:
        """
        Finalise ``window`` if its close record lies in its folder.
        """
        record = self._world.record(window)
        return record is not None and self._close(window, record)

    def overdue(self) -> list[Window]:
        """
        Windows whose time is over: each is given up here, and answered so that its process can be told.
        """
        now = self._world.monotonic()
        found = []
        for window_id in [key for key, deadline in self._deadlines.items() if now >= deadline]:
            del self._deadlines[window_id]
            window = self.windows.get(window_id)
            if window is None or not window.leased:
                continue
            if window.state is State.OPENING and not self.take_record(window):
                self._apply(window, self.windows.expire(window_id))
            else:
                lives = self._world.alive(*window.process)
                self.give_up(window, Reason.SIDECAR_LOST if lives else Reason.PROCESS_LOST)
            found.append(window)
        return found

    def _taken(self, window: Window) -> Window | None:
        return self.windows.of_key(window.key, process=window.process)

    def _own(self, process: Process, window_id: str, said: str) -> Window | None:
        """
        The window that ``process`` has ``said`` something of; None, and counted, where it has no such window.
        """
        window = self.windows.get(window_id)
        if window is None or window.process != process.identity:
            self.windows.ignored[said] += 1
            return None
        return window

    def _relative(self, path: str) -> str:
        return str(Path(path).relative_to(self._root))

    def _close(self, window: Window, record: wire.Closed) -> bool:
        record = self._world.attached.closing(window, record)
        after = self._apply(window, self.windows.closed(record))
        if after is not None:
            self._room.closed(after)
            self._finalise(after, record)
        return after is not None

    def _finalise(self, window: Window, record: wire.Closed | None) -> None:
        self._deadlines.pop(window.window, None)
        if record is not None:
            self._world.finalise(window, record)
        else:
            detail = "the close record is gone"
            self._apply(window, self.windows.failed(window.window, reason=Reason.NO_ARTIFACT, detail=detail))

    def _apply(self, before: Window | None, after: Window | None) -> Window | None:
        if after is not None:
            self._told(after, before=before)
        return after

    def _told(self, window: Window, *, before: Window | None) -> None:
        if window.state.final:
            self._deadlines.pop(window.window, None)
            self._room.over(window)
        LOG.info("window %s: %s", window.window, f"{window.state} {window.reason} {window.detail}".strip())
        # Whatever its tool, its process or the system said: from here on it goes into rows, spans and pages.
        window = replace(window, detail=without_folders(window.detail))
        self._ledger.window(window, before=before)
        self._world.attached.changed(window, before=before)
