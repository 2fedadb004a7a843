"""
The processes registered with this sidecar: who they are, how far they are, whether they live.

Owns no sockets: a process has a link while it is connected, and whoever serves the socket tells when it comes and goes.
A closed link is not a death.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from stepscope import names, wire
from stepscope.paths import without_folders
from stepscope_sidecar.expected import Member
from stepscope_sidecar.plan import Plan

KEPT_STEPS = 64
"""Steps for which it is remembered whether a process was expected to record: far more than are undecided at a time."""


class Link(Protocol):
    """
    A process's connection.
    """

    def send(self, message: wire.Message) -> None:
        """
        Queue ``message``; never blocks, and does nothing once closed.
        """

    def close(self) -> None:
        """
        End the connection after what is queued.
        """


@dataclass(kw_only=True, slots=True, eq=False)
class Process:
    """
    One registration of one process in one role.
    """

    pid: int
    process_start: int
    node: str
    role: str
    rank: int
    watch_pid: int
    """Its pid as this sidecar sees it (SO_PEERCRED); 0 where it cannot be seen (another pid namespace)."""
    world_size: int | None = None
    param_version: int = 0
    resumed_from: int | None = None
    total_steps: int | None = None
    devices: tuple[str, ...] = ()
    tools: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    register_only: bool = False
    """It has no steps, and no windows. Not kept in the store: it says so again within seconds of a restart."""
    registered_unix_ns: int = 0
    ended_unix_ns: int = 0
    end_reason: str = ""
    link: Link | None = None
    unlinked_at: float | None = None
    """Monotonic time since when it has had no link."""
    entered: dict[int, bool] = field(default_factory=dict)
    """Steps it entered; whether it was expected to record then."""
    entered_step: int = 0
    closed_step: int = 0

    @property
    def identity(self) -> tuple[int, int]:
        """
        Pid and start: a reused pid is another process.
        """
        return (self.pid, self.process_start)

    @property
    def key(self) -> tuple[int, int, str, int]:
        """
        The registration: a process that takes another role registers anew.
        """
        return (self.pid, self.process_start, self.role, self.rank)

    @property
    def alive(self) -> bool:
        """
        Whether it is still part of the run.
        """
        return not self.ended_unix_ns

    @classmethod
    def of(cls, message: wire.Register, *, peer: int, unix_ns: int) -> "Process":
        """
        The process that says ``message`` of itself.
        """
        return cls(
            pid=message.pid,
            process_start=message.process_start,
            node=message.node,
            role=message.role,
            rank=message.rank,
            watch_pid=peer,
            world_size=message.world_size,
            param_version=message.param_version,
            resumed_from=message.resumed_from,
            total_steps=message.total_steps,
            devices=tuple(message.device_ids),
            tools={tool: without_folders(why) for tool, why in message.tools.items()},
            environment=dict(message.environment),
            register_only=message.register_only,
            registered_unix_ns=unix_ns,
        )

    def resume(self, known: "Process") -> None:
        """
        It registered before, as ``known``: what has been noticed since still holds.
        """
        self.registered_unix_ns = known.registered_unix_ns
        self.param_version = max(self.param_version, known.param_version)
        self.entered = {**known.entered, **self.entered}
        self.entered_step = max(self.entered_step, known.entered_step)
        self.closed_step = max(self.closed_step, known.closed_step)

    def send(self, message: wire.Message) -> None:
        """
        Tell it ``message``, if it is connected.
        """
        if self.link is not None:
            self.link.send(message)

    def close_step(self, step: int, *, partial: bool, version: int | None = None) -> None:
        """
        It closed ``step``, and ``version`` is in force now if it says so. A partial step belongs to no update, and
        nothing is expected of it.
        """
        self.closed_step = max(self.closed_step, step)
        self.param_version = max(self.param_version, version or 0)
        if partial:
            self.entered.pop(step, None)

    def enter(self, step: int, version: int, *, expected: bool) -> None:
        """
        It entered ``step`` with ``version`` in force. Entering a step again changes nothing.
        """
        self.param_version = max(self.param_version, version)
        self.entered_step = max(self.entered_step, step)
        self.entered.setdefault(step, expected)
        while len(self.entered) > KEPT_STEPS:
            del self.entered[min(self.entered)]

    def member(self, step: int) -> Member:
        """
        It, as far as ``step`` is concerned.
        """
        return Member(
            role=self.role,
            rank=self.rank,
            entered=step in self.entered,
            expected=self.entered.get(step, False),
            decided=not self.alive or self.closed_step > step,
        )


class Processes:
    """
    All registrations, by key. Not thread-safe: the control loop owns it.
    """

    def __init__(self) -> None:
        self._processes: dict[tuple[int, int, str, int], Process] = {}

    def __iter__(self) -> Iterator[Process]:
        return iter(list(self._processes.values()))

    def get(self, key: tuple[int, int, str, int]) -> Process | None:
        """
        The registration of that key.
        """
        return self._processes.get(key)

    def put(self, process: Process) -> Process:
        """
        Hold ``process``.
        """
        self._processes[process.key] = process
        return process

    def of(self, identity: tuple[int, int]) -> list[Process]:
        """
        The registrations of one process that are part of the run.
        """
        return [process for process in self if process.identity == identity and process.alive]

    def alive(self) -> list[Process]:
        """
        The registrations that are part of the run.
        """
        return [process for process in self if process.alive]

    def counts(self) -> dict[str, int]:
        """
        Living processes by role; 0 for a role that has none left.
        """
        found: dict[str, int] = {}
        for process in self:
            found[process.role] = found.get(process.role, 0) + process.alive
        return found

    def versions(self) -> dict[str, int]:
        """
        The highest version that a process of each role has reached.
        """
        found: dict[str, int] = {}
        for process in self:
            found[process.role] = max(found.get(process.role, 0), process.param_version)
        return found

    def world(self) -> dict[str, int]:
        """
        The declared world size of each role.
        """
        return {process.role: process.world_size for process in self if process.world_size is not None}


def unknown_roles(plan: Plan, processes: Processes) -> list[str]:
    """
    A warning that names the roles in ``STEPSCOPE_TOOLS`` that nobody has, once a step has been finished here.

    Roles are free words, and a sidecar sees its node alone. So a role that is not here is only suspected where one that
    is here goes unnamed: with ``trianer=py-spy`` the trainer does, with ``trainer=torch`` no rollouter's node is warned
    that names itself too.
    """
    here = {process.role for process in processes if not process.register_only}
    absent = sorted({role for role in plan.tools if role} - here)
    unnamed = sorted(here - set(plan.tools))
    if not absent or not unnamed or not any(process.closed_step for process in processes):
        return []
    named, found = ", ".join(map(repr, absent)), ", ".join(f"{role} (by {plan.tool(role)})" for role in unnamed)
    why = f"{names.TOOLS} names {named}, which no process of this node has registered as; it does not name {found}"
    return [f"{why}: a misspelt role, unless it is on another node"]


def unreachable(plan: Plan, process: Process) -> list[str]:
    """
    A warning that names the selected steps which cannot occur in the run that ``process`` is part of.
    """
    named = plan.selection.unreachable(resumed_from=process.resumed_from or 0, total_steps=process.total_steps)
    if not named:
        return []
    since = f", which resumed at version {process.resumed_from}" if process.resumed_from else ""
    until = f" of {process.total_steps} steps" if process.total_steps is not None else ""
    return [f"selected steps {', '.join(named)} cannot occur in this run{until}{since}"]
