"""
Control of this node's windows: answers processes, obeys orders, and notices who has gone.

Decides from memory alone, at once: nothing here waits for the store. The one thing that it may write is the few lines
of who is recorded along with whom, when one of those has ended (``attach.companions``). Single-threaded; the control
loop calls it with messages, deaths, results of finalising and the passing of time. Sockets are ``control``'s, what
follows from a window's change is ``recordings``', what may open is ``policy``'s, and how a window may change is
``windows``'.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from stepscope import wire
from stepscope.names import Reason, State
from stepscope.selection import Selection
from stepscope.settings import RUN_PATTERN, Settings
from stepscope_sidecar.census import Census
from stepscope_sidecar.jobs import Result
from stepscope_sidecar.plan import ENVIRONMENT, STEPS_FILE, Plan, ordered
from stepscope_sidecar.processes import Link, Process, Processes, unknown_roles, unreachable
from stepscope_sidecar.recordings import GRACE, Recordings
from stepscope_sidecar.rows import ROLE_PATTERN, MissingRow
from stepscope_sidecar.seams import Ledger, World
from stepscope_sidecar.windows import Window

LOG = logging.getLogger(__name__)

KEPT_STEPS = 1000
"""Steps whose final windows are held in memory, for duplicates; the store has all of them."""


class Controller:
    """
    The one place where this node's windows open and end.
    """

    def __init__(self, settings: Settings, plan: Plan, *, ledger: Ledger, world: World, node: str) -> None:
        """
        Control the windows of the attempt that ``settings`` names.
        """
        self.settings = settings
        self.plan = plan
        self.processes = Processes()
        self.census = Census()
        self.recordings = Recordings(settings, ledger=ledger, world=world, node=node)
        self._ledger = ledger
        self._world = world
        self._warned: list[str] = []
        """What the log says of roles; it is not said twice."""

    def resume(self, processes: Iterable[Process], windows: Iterable[Window]) -> None:
        """
        Take over from a sidecar that ended.
        """
        for process in processes:
            process.unlinked_at = self._world.monotonic()
            self.processes.put(process)
            step = process.entered_step
            if process.alive and step > process.closed_step:
                expected = self.plan.selected(step=step, role=process.role, rank=process.rank)
                process.enter(step, process.param_version, expected=expected)
                if expected:
                    self.census.expect(step)
        self.recordings.resume(windows)

    # Messages --------------------------------------------------------------------------------------------------

    def register(
        self, message: wire.Register, link: Link, *, peer: int, former: Process | None = None
    ) -> Process | None:
        """
        Answer a registration; None if it is refused.

        Args:
            message: what the process says of itself.
            link: its connection.
            peer: its pid as the kernel tells us; 0 if it is in another pid namespace.
            former: what the same connection was registered as before, if anything.
        """
        refusal = self._refusal(message)
        if refusal:
            LOG.warning("pid %d refused: %s", peer, refusal)
            link.send(wire.Refused(id=message.id, reason=refusal))
            return None
        process = Process.of(message, peer=peer, unix_ns=self._world.unix_ns())
        if former is not None and former.key != process.key:
            self.gone(former, Reason.REREGISTERED)
        known = self.processes.get(process.key)
        if known is not None and known.alive:
            if known.link is not None and known.link is not link:
                known.link.close()
            process.resume(known)
        process.link = link
        self.processes.put(process)
        before = self.plan
        self.plan, warnings = self.plan.registered(message.environment)
        if self.plan is not before:
            self._ledger.plan(self.plan)
        warnings += unreachable(self.plan, process) + self.warnings
        for warning in warnings:
            LOG.warning("%s rank %d (pid %d): %s", process.role, process.rank, process.pid, warning)
        process.send(
            wire.Registered(
                id=message.id,
                selection=self.plan.selection.text,
                revision=self.plan.revision,
                stopped=self.plan.stopped,
                otlp_endpoint=self._world.otlp(),
                warnings=warnings,
            )
        )
        self.recordings.confirm(process, message.open_windows)
        if self.plan.stopped:
            self._stop_all()
        self._ledger.process(process)
        if not process.register_only:
            self._ledger.tool(process.role, self.plan.tool(process.role))
        return process

    def handle(self, process: Process, message: wire.Message) -> None:
        """
        Act on a message of a registered process.
        """
        match message:
            case wire.Open():
                self.recordings.open(process, message, self.plan)
            case wire.Started():
                self.recordings.started(process, message)
            case wire.Continued():
                self.recordings.continued(process, message)
            case wire.Closed():
                self.recordings.closed(process, message)
            case wire.Ended():
                self.recordings.ended(process, message)
            case wire.Missed():
                self.recordings.missed(process, message, self.plan)
            case wire.Version():
                self._entered(process, message)
            case wire.StepClosed():
                process.close_step(message.step, partial=message.partial, version=message.param_version)
                self._ledger.process(process)
            case wire.Samples():
                self._ledger.samples(message)
            case wire.Dropped():
                self._ledger.dropped(message.spans)
            case wire.Bye():
                self.gone(process, Reason.PROCESS_EXIT)
            case _:
                self.recordings.windows.ignored[type(message).__name__.lower()] += 1

    def unlinked(self, process: Process, link: Link) -> None:
        """
        Its connection has ended. That alone is not death.
        """
        if process.link is link:
            process.link, process.unlinked_at = None, self._world.monotonic()

    def gone(self, process: Process, reason: Reason = Reason.PROCESS_LOST) -> None:
        """
        It has left the run: what it closed before is finalised, what it had open is lost.
        """
        if not process.alive:
            return
        process.ended_unix_ns, process.end_reason = self._world.unix_ns(), reason
        LOG.info("%s rank %d (pid %d) has left: %s", process.role, process.rank, process.pid, reason)
        if not self.processes.of(process.identity):
            for window in self.recordings.windows.leased(process=process.identity):
                self.recordings.give_up(window, reason)
        self._ledger.process(process)

    def finalised(self, result: Result) -> Window | None:
        """
        The finaliser is done with a window; answers it as it is now, None if nothing was waiting for that.
        """
        return self.recordings.finalised(result)

    def tick(self) -> None:
        """
        Time has passed: give up what waited too long, and count what is missing. Called a few times a second.
        """
        for process in self.processes.alive():
            if process.unlinked_at is None or self._world.monotonic() - process.unlinked_at < GRACE:
                continue
            # One that can be watched has a pidfd; this is for a process in another pid namespace.
            if not process.watch_pid or not self._world.alive(process.watch_pid, process.process_start):
                self.gone(process)
        # After those who have gone: what such a process never started is lost with it.
        for window in self.recordings.overdue():
            for process in self.processes.of(window.process):
                process.send(wire.Stop(window=window.window, reason=Reason.GRANT_TOO_LATE))
        self._warn_of_roles()
        before = self.census.by_role
        found = list(
            self.census.count(self.processes, self.recordings.windows, self.plan.ranks, alone=self._world.alone())
        )
        for missing in found:
            LOG.warning("no recording of step %d by %s rank %d: %s", *missing)
        if found or self.census.by_role is not before:
            rows = [MissingRow(step=step, role=role, rank=rank, reason=reason) for step, role, rank, reason in found]
            self._ledger.missing(self.census.by_role, rows)

    # Orders ----------------------------------------------------------------------------------------------------

    def set_selection(self, text: str, source: str) -> Plan:
        """
        Record the steps that ``text`` names from now on; takes a stop back.

        Raises:
            SelectionError: ``text`` does not follow the grammar.
        """
        selection = Selection.parse(text)
        self._order(self.plan.ordered(selection, source=source, unix_ns=self._world.unix_ns()))
        return self.plan

    def too_late(self) -> list[str]:
        """
        A warning that names the selected steps which no process can record any more, or which the run does not have.
        """
        entered = [process for process in self.processes.alive() if process.entered_step]
        if not entered:
            return []
        first = min(process.entered_step for process in entered)
        ends = {process.total_steps for process in entered}
        named = self.plan.selection.unreachable(resumed_from=first, total_steps=ends.pop() if len(ends) == 1 else None)
        return [f"selected steps {', '.join(named)} cannot occur any more: step {first} has begun"] if named else []

    def follow(self, selection: Selection, path: Path) -> None:
        """
        Record the steps that the watched file at ``path`` names from now on; a stop stays.

        What it says holds also where that is what is selected already: the first registration's environment would win.
        """
        if selection.text != self.plan.selection.text or self.plan.source == ENVIRONMENT:
            self._order(self.plan.filed(selection, source=STEPS_FILE.format(path)))
            for warning in self.too_late():
                LOG.warning("%s: %s", path, warning)

    def stop(self, source: str) -> int:
        """
        Close all open windows now and open none until :meth:`set_selection`; how many were told to close.
        """
        # That an order from upstream was obeyed is kept, also where it changes nothing.
        if not self.plan.stopped or ordered(source):
            self._order(self.plan.halted(source=source, unix_ns=self._world.unix_ns()))
        return self._stop_all()

    @property
    def warnings(self) -> list[str]:
        """
        What a person should know of the configuration now.
        """
        return self.plan.obstacles() + unknown_roles(self.plan, self.processes) + self._world.troubles()

    @property
    def unfinished(self) -> int:
        """
        Windows that are not final.
        """
        return len(self.recordings.windows.unfinished())

    def busy(self) -> set[int]:
        """
        The steps of windows that are not final.
        """
        return {window.step for window in self.recordings.windows.unfinished()}

    @property
    def open(self) -> dict[str, int]:
        """
        Windows recording now, by role.
        """
        found = dict.fromkeys(self.processes.counts(), 0)
        for window in self.recordings.windows.leased():
            found[window.role] = found.get(window.role, 0) + 1
        return found

    # Inside ----------------------------------------------------------------------------------------------------

    def _refusal(self, message: wire.Register) -> str:
        if message.protocol != wire.PROTOCOL:
            return f"protocol {message.protocol}, this sidecar speaks {wire.PROTOCOL}; use one release of stepscope"
        if (message.run, message.attempt) != (self.settings.run, self.settings.attempt):
            asked = f"{message.run}-{message.attempt}"
            return f"this sidecar is for {self.settings.run}-{self.settings.attempt}, not for {asked}"
        if not ROLE_PATTERN.fullmatch(message.role) or message.rank < 0:
            return f"role {message.role!r}, rank {message.rank}: a role is up to 32 letters, digits, '_', '-' and '.'"
        unsafe = [item.tool for item in message.open_windows if not RUN_PATTERN.fullmatch(item.tool)]
        return f"tool {unsafe[0]!r} is no name of a profiler" if unsafe else ""

    def _warn_of_roles(self) -> None:
        found = unknown_roles(self.plan, self.processes)
        for warning in found:
            if warning not in self._warned:
                LOG.warning("%s", warning)
        self._warned = found

    def _entered(self, process: Process, message: wire.Version) -> None:
        expected = self.plan.selected(step=message.step, role=process.role, rank=process.rank)
        process.enter(message.step, message.param_version, expected=expected)
        if expected:
            self.census.expect(message.step)
        if message.update_delay > 0:
            self._ledger.update_delayed(process.role, message.update_delay)
        self.recordings.windows.forget(before_step=message.step - KEPT_STEPS)
        self._ledger.process(process)

    def _order(self, plan: Plan) -> None:
        self.plan = plan
        LOG.info("selection %r, stopped %s, by %s", plan.selection.text, plan.stopped, plan.source)
        self._ledger.plan(plan)
        told = wire.Selected(
            selection=plan.selection.text, revision=plan.revision, stopped=plan.stopped, source=plan.said_by
        )
        for process in self.processes.alive():
            process.send(told)

    def _stop_all(self) -> int:
        told = 0
        for window in self.recordings.windows.leased():
            if window.state is not State.CLOSING:
                process = next(iter(self.processes.of(window.process)), None)
                told += self.recordings.stop(process, window, Reason.STOPPED_BY_USER)
        return told
