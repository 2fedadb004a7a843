"""
Windows and what follows from their changes: grants, deadlines, finalising, telling the process to stop.

Stands between the pure state machine (``windows``) and the controller, which owns processes and orders. Every change
goes through here once and is told to the ledger, so that what is kept is what happened.
"""

import logging
import secrets
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stepscope import wire
from stepscope.names import Level, Reason, State
from stepscope.settings import Settings
from stepscope_sidecar.finalise import Result
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.policy import Ask, Rules, decide
from stepscope_sidecar.processes import Process
from stepscope_sidecar.seams import Ledger, World
from stepscope_sidecar.windows import REASONS, Window, Windows

LOG = logging.getLogger(__name__)

GRACE = 10.0
"""Seconds for processes to register again after a restart or a lost connection; they try every second."""

OPENING_LIMIT = 60.0
"""Seconds from a grant to the profiler running. A first start takes up to 2.7 s, on a machine short of CPU far more."""

SAFE_ON_ANY_THREAD = frozenset({Level.OPS, Level.FULL})
"""Levels whose profiler may be stopped by another thread than started it."""

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
        self._node = node
        self._deadlines: dict[str, float] = {}
        """When a window that is opening, or that no process has confirmed, is given up."""

    def resume(self, windows: Iterable[Window]) -> None:
        """
        Take over from a sidecar that ended: what was closed meanwhile is finalised, the rest has a time to come back.
        """
        for window in windows:
            if self.windows.get(window.window) or (window.leased and self.windows.of_key(window.key)):
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
        window = self._asked(process, message.step, message.param_version, plan)
        window = replace(window, forced=message.forced)
        if message.other_thread and window.level not in SAFE_ON_ANY_THREAD:
            window = replace(window, level=Level.OPS, level_fallback=window.level)
        left = self._world.disk_left()
        ask = Ask(
            step=message.step,
            role=process.role,
            rank=process.rank,
            process=process.identity,
            tool=window.tool,
            devices=process.devices,
            tools=process.tools,
            forced=message.forced,
        )
        rules = Rules(
            selection=plan.selection,
            ranks=plan.ranks,
            stopped=plan.stopped,
            overhead=self._world.overhead(process.role),
            max_overhead=self._settings.max_overhead,
            disk_left=lambda: left,
        )
        reason = decide(ask, rules, self.windows)
        if reason is not None:
            process.send(wire.Deny(id=message.id, reason=reason))
            self.deny(window, reason, process.tools.get(window.tool, "") if reason == Reason.TOOL_UNAVAILABLE else "")
            return
        caps = wire.Caps(
            seconds=self._settings.cap_seconds,
            bytes=min(self._settings.cap_bytes or left, left),
            memory=self._settings.cap_memory,
        )
        self._deadlines[window.window] = self._world.monotonic() + OPENING_LIMIT
        window = self.windows.put(window)
        grant = wire.Grant(
            id=message.id,
            window=window.window,
            tool=window.tool,
            level=window.level,
            folder=str(self._settings.directory.absolute() / window.folder),
            caps=caps,
        )
        process.send(grant)
        self._told(window, before=None)

    def missed(self, process: Process, message: wire.Missed, plan: Plan) -> None:
        """
        A process denied itself a window while there was no sidecar to ask.
        """
        window = self._asked(process, message.step, message.param_version, plan)
        granted = self.windows.of_key(window.key)
        if granted is not None and granted.process == window.process:
            # The grant did not reach it: this is how that window ended.
            self.windows.ignored["missed"] += 1
            if granted.leased:
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
        for other in self.windows:
            if other.key == window.key:
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
        before = self.windows.get(message.window)
        if before is None or before.process != process.identity:
            self.windows.ignored["started"] += 1
            return
        if self._apply(before, self.windows.started(message)) is None and before.state.final:
            process.send(wire.Stop(window=message.window, reason=Reason.GRANT_TOO_LATE))
        self._deadlines.pop(message.window, None)

    def closed(self, process: Process, record: wire.Closed) -> None:
        """
        A process has written a raw recording.
        """
        before = self.windows.get(record.window)
        if before is None or before.process != process.identity:
            self.windows.ignored["closed"] += 1
            return
        self._close(before, record)

    def ended(self, process: Process, message: wire.Ended) -> None:
        """
        A granted window did not come to anything.
        """
        before = self.windows.get(message.window)
        if before is None or before.process != process.identity:
            self.windows.ignored["ended"] += 1
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
            after = self._apply(before, self.windows.adopt(self._reopened(process, item)))
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

    def _asked(self, process: Process, step: int, version: int, plan: Plan) -> Window:
        tool = plan.tool(process.role)
        who = f"{process.role}-{process.rank}-{process.pid}"
        folder = self._settings.attempt_folder / f"step-{step:06d}" / who / tool
        return Window(
            window=f"{step:06d}-{who}-{tool}-{secrets.token_hex(3)}",
            step=step,
            param_version=version,
            role=process.role,
            rank=process.rank,
            pid=process.pid,
            process_start=process.process_start,
            node=self._node,
            tool=tool,
            level=plan.level,
            folder=str(folder.relative_to(self._settings.directory.absolute())),
            devices=process.devices,
            asked_unix_ns=self._world.unix_ns(),
        )

    def _reopened(self, process: Process, item: wire.OpenWindow) -> Window:
        who = f"{process.role}-{process.rank}-{process.pid}"
        folder = self._settings.attempt_folder / f"step-{item.step:06d}" / who / item.tool
        return Window(
            window=item.window,
            step=item.step,
            param_version=item.param_version,
            role=process.role,
            rank=process.rank,
            pid=process.pid,
            process_start=process.process_start,
            node=self._node,
            tool=item.tool,
            level=item.level,
            folder=str(folder.relative_to(self._settings.directory.absolute())),
            devices=process.devices,
            opened_unix_ns=item.opened_unix_ns,
            trace_id=item.trace_id,
            span_id=item.span_id,
            stall=item.stall,
        )

    def _relative(self, path: str) -> str:
        return str(Path(path).relative_to(self._settings.directory.absolute()))

    def _close(self, window: Window, record: wire.Closed) -> bool:
        after = self._apply(window, self.windows.closed(record))
        if after is not None:
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
        LOG.info("window %s: %s", window.window, f"{window.state} {window.reason}".strip())
        self._ledger.window(window, before=before)
