"""
This process towards its sidecar: registration, the local copy of the selection, and what is told at each boundary.

Owns what the messages of the control socket mean here. Leaves the socket to :mod:`stepscope.connection` and windows to
:mod:`stepscope.windows`. No method raises; only ``start`` and ``close`` may take longer than a request's deadline.
"""

import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Self, cast

from stepscope import devices, ids, launch, names, wire
from stepscope.complaints import complaints
from stepscope.connection import Connection
from stepscope.errors import SelectionError
from stepscope.profilers import AnyProfiler, Registry, is_sync
from stepscope.seam import Change, Identity, LiveSpans, SampleRow
from stepscope.selection import Selection
from stepscope.settings import KNOWN_TOOLS, REGISTERED_TOOL, SHARED, Settings
from stepscope.windows import Windows

INIT_DEADLINE = 10.0
"""Seconds that ``init()`` waits for the registration: a sidecar that has to start takes two to five."""

BESIDE = frozenset({names.Reason.DUPLICATE, names.Reason.BUSY_PROCESS})
"""Why a window is denied beside one that this process has: told again, it would say how that one ended."""

RECENT = 8
"""Steps for which a denial is told again; a sidecar knows far more of them."""

Ensure = Callable[[Settings], str]


class Agent:
    """
    Made by :meth:`start`, ended by :meth:`close`.
    """

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        *,
        live_spans: LiveSpans = tuple,
        profilers: Registry | None = None,
        changed: Callable[[Change], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """
        ``changed`` is told of a change of the selection, on the connection's thread.
        """
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._profilers = profilers or Registry(settings=settings, identity=identity)
        self._selection = settings.selection
        self._revision = -1
        self._stopped = False
        self._stall: dict[str, float] = {}
        self.registered: Callable[[], None] = lambda: None
        """Called when a sidecar has taken this process, for the first time or again; on the connection's thread."""
        self._denied: wire.Missed | None = None
        """The window that was asked for last, where it was denied."""
        self._known = False
        self._changed = changed
        self._otlp = ""
        # On the thread of init(): which device is current is a thread's own affair.
        self._devices = [] if identity.register_only else devices.of(identity.device_ids)
        self._version = identity.param_version
        self.windows = Windows(
            control=self,
            profilers=self._profilers,
            tool=settings.tool(identity.role),
            rank=identity.rank,
            world_size=identity.world_size,
            live_spans=live_spans,
            clock=clock,
        )
        self._connection = Connection(
            settings.socket_path,
            register=self._registration,
            heard=self._hear,
            deadline=settings.boundary_seconds,
        )
        _agents.add(self)

    @classmethod
    def start(
        cls,
        settings: Settings,
        identity: Identity,
        *,
        live_spans: LiveSpans = tuple,
        profilers: Registry | None = None,
        changed: Callable[[Change], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
        ensure: Ensure = launch.ensure,
        deadline: float = INIT_DEADLINE,
    ) -> Self:
        """
        Register this process, starting a sidecar if there is none, and pay the profiler's first start meanwhile.
        """
        agent = cls(settings, identity, live_spans=live_spans, profilers=profilers, changed=changed, clock=clock)
        until = time.monotonic() + deadline
        missing = ensure(settings)
        agent._connection.start()
        agent._prepare()
        if missing:
            complaints.warn("sidecar", "%s: the run goes on, selected steps are not recorded", missing)
            agent._connection.settled(0.0, quiet=True)
        else:
            left = max(0.0, until - time.monotonic())
            agent._connection.settled(left, hopeless=lambda: launch.failed(settings))
            launch.release()
        return agent

    # What the boundary calls and spans use ----------------------------------------------------------------------

    def selected(self, step: int) -> bool:
        """
        Whether ``step`` is selected, from the local copy. While recording is stopped the sidecar is asked as ever: it
        denies, and what is denied is listed.
        """
        return step in self._selection

    def records(self, step: int) -> bool:
        """
        Whether ``step`` is selected and recording is not stopped.
        """
        return not self._stopped and step in self._selection

    def entered(self, step: int, version: int, update_delay: float = 0.0) -> None:
        """
        The process entered ``step`` with ``version`` in force; profiling kept the update waiting for so many seconds.
        """
        self._version = version
        self._connection.send(wire.Version(step=step, param_version=version, update_delay=update_delay))

    def step_closed(self, step: int, partial: bool = False, version: int | None = None) -> None:
        """
        The process closed ``step``; ``version`` is in force now, where that is known already.
        """
        if version is not None:
            self._version = version
        self._connection.send(wire.StepClosed(step=step, partial=partial, param_version=version))

    def samples(self, *, step: int, mini_batch: int, param_version: int, rows: Sequence[SampleRow]) -> None:
        """
        The samples that one mini-batch consumed.
        """
        table = [list(row) for row in rows]
        message = wire.Samples(step=step, mini_batch=mini_batch, param_version=param_version, rows=table)
        self._connection.send(message, keep=True)

    def dropped(self, counts: Mapping[str, int]) -> None:
        """
        Spans that could not be delivered, by reason, since last told.
        """
        self._connection.send(wire.Dropped(spans=dict(counts)), keep=True)

    def take_stall(self) -> Mapping[str, float]:
        """
        Seconds by phase that the windows which have ended since the last call kept this process from its work.
        """
        taken, self._stall = self._stall, {}
        return taken

    def otlp_endpoint(self) -> str:
        """
        Base address of the sidecar's OTLP/HTTP receiver; empty while there has been no sidecar.
        """
        return self._otlp

    def register_profiler(self, profiler: object) -> None:
        """
        Take an engine's profiler beside the built-in ones, and tell the sidecar. Its name is one of ours, or begins
        with ``x-``: nobody could choose another.
        """
        name = str(getattr(profiler, "name", ""))
        if name not in KNOWN_TOOLS and not REGISTERED_TOOL.fullmatch(name):
            complaints.warn(f"tool:{name}", "profiler %r is not taken: name it x-SOMETHING, in lower case", name)
            return
        self._profilers.add(cast("AnyProfiler", profiler))
        self._connection.renew()

    def close(self, timeout: float = 5.0) -> None:
        """
        Close what is open, say goodbye and end the threads.
        """
        until = time.monotonic() + timeout
        self.windows.end(version=self._version, timeout=timeout)
        self._connection.close(max(0.2, until - time.monotonic()))
        launch.reap()
        _agents.discard(self)

    def forget(self) -> None:
        """
        Go inert in a forked child: everything here belongs to its parent.
        """
        self._selection = Selection.parse("")
        self.windows.forget()
        self._connection.forget()

    # What the windows use ---------------------------------------------------------------------------------------

    def ask(self, *, step: int, param_version: int, forced: bool) -> wire.Message | None:
        """
        Ask the sidecar for a window.
        """
        answer = self._connection.request(
            lambda number: wire.Open(id=number, step=step, param_version=param_version, forced=forced),
            missed=self._missed(step, param_version, names.Reason.SIDECAR_LOST),
        )
        self._denied = None
        if isinstance(answer, wire.Deny) and answer.reason not in BESIDE:
            self._denied = self._missed(step, param_version, answer.reason)
        return answer

    def miss(self, *, step: int, param_version: int, reason: str) -> None:
        """
        Tell of a window that was denied without asking.
        """
        self._connection.send(self._missed(step, param_version, reason), keep=True)

    def tell(self, message: wire.Message) -> None:
        """
        Send ``message``, to the next sidecar if there is none now.
        """
        if isinstance(message, wire.Closed | wire.Ended):
            for phase, seconds in message.stall.items():
                self._stall[phase] = self._stall.get(phase, 0.0) + seconds
        # A start is told by registering again.
        self._connection.send(message, keep=not isinstance(message, wire.Started))

    def metadata(self) -> Mapping[str, str]:
        """
        What every recording of this process says of its origin.
        """
        return {
            "stepscope.run": self._settings.run,
            "stepscope.attempt": self._settings.attempt,
            "stepscope.role": self._identity.role,
            "stepscope.rank": str(self._identity.rank),
        }

    # Inside ------------------------------------------------------------------------------------------------------

    def _missed(self, step: int, param_version: int, reason: str) -> wire.Missed:
        return wire.Missed(step=step, param_version=param_version, reason=reason, unix_ns=self._clock())

    def _registration(self, number: int) -> wire.Register:
        identity, settings = self._identity, self._settings
        return wire.Register(
            id=number,
            protocol=wire.PROTOCOL,
            run=settings.run,
            attempt=settings.attempt,
            node=ids.node(),
            pid=os.getpid(),
            process_start=ids.process_start(),
            role=identity.role,
            rank=identity.rank,
            world_size=identity.world_size,
            param_version=self._version,
            resumed_from=identity.resumed_from,
            total_steps=identity.total_steps,
            device_ids=self._devices,
            tools=self._profilers.tools(),
            environment={str(name): os.environ[name] for name in SHARED if os.environ.get(name)},
            open_windows=self.windows.listed(),
            register_only=identity.register_only,
        )

    def _hear(self, message: wire.Message) -> None:
        match message:
            case wire.Registered():
                self._otlp = message.otlp_endpoint
                # A sidecar that was started anew counts from where its store ends, so any revision is news.
                self._revision = -1
                self._select(message)
                self._tell_denied()
                self.registered()
                for warning in message.warnings:
                    complaints.warn(f"registered:{warning}", "%s", warning)
            case wire.Selected():
                self._select(message)
            case wire.Stop():
                self.windows.stop(message.window, message.reason)
            case wire.Refused():
                complaints.warn("refused", "the sidecar does not take this process: %s", message.reason)

    def _tell_denied(self) -> None:
        """
        A sidecar that was killed may not have kept what it denied last; one that has it takes no notice.
        """
        denied = self._denied
        if denied is not None and self._version - denied.step < RECENT:
            self._connection.send(denied, keep=True)

    def _select(self, message: wire.Registered | wire.Selected) -> None:
        if message.revision < self._revision:
            return
        selection = self._selection
        try:
            selection = Selection.parse(message.selection)
        except SelectionError as error:
            complaints.warn("selection", "the sidecar's selection cannot be read: %s", error)
        before, now = (self._selection.text, self._stopped), (selection.text, message.stopped)
        # What the first registration brings is where the process begins, and no change.
        known, self._known = self._known, True
        if self._changed is not None and known and before != now:
            # Before it holds: the change belongs to the span in which it came, and with it another may begin.
            self._changed(
                Change(
                    steps=selection.text,
                    revision=message.revision,
                    stopped=message.stopped,
                    source=message.source if isinstance(message, wire.Selected) else "",
                )
            )
        self._selection, self._revision, self._stopped = selection, message.revision, message.stopped

    def _prepare(self) -> None:
        """
        Pay what the first start of the profiler costs, if this process can be selected at all.
        """
        settings, identity = self._settings, self._identity
        selectable = settings.selection or settings.steps_file is not None
        chosen = selectable and settings.ranks.holds(role=identity.role, rank=identity.rank)
        if not chosen or identity.register_only:
            return
        try:
            profiler = self._profilers.find(settings.tool(identity.role))
            if profiler is not None and is_sync(profiler) and not profiler.unavailable() and not profiler.foreign():
                profiler.prepare()
        except Exception as error:  # noqa: BLE001 - the first window is merely slower, or says what is wrong
            complaints.fault("preparing the profiler", error)


_agents: "weakref.WeakSet[Agent]" = weakref.WeakSet()


def _in_child() -> None:
    for agent in list(_agents):
        agent.forget()


os.register_at_fork(after_in_child=_in_child)
