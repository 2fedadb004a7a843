"""
The seam between the boundary calls and spans on one side and the window agent on the other.

Owns what each side may ask of the other. ``stepscope.agent.Agent`` and ``stepscope.windows.Windows`` satisfy these
protocols structurally; ``stepscope.testing`` has an agent of plain data that does too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

LiveSpan = tuple[int, str, int, int]
"""A span that is open now: span id, name, start in unix-epoch ns, ident of the thread that began it."""

LiveSpans = Callable[[], Sequence[LiveSpan]]
"""Asks for the spans that are open now; callable from any thread."""

SampleRow = tuple[str, int | None, int | None, str | None, str | None]
"""Sample id, oldest and newest version it was generated under, trace id and span id (hex) of its rollout span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """
    Who this process is, as ``init()`` was told.
    """

    role: str
    rank: int = 0
    world_size: int | None = None
    param_version: int = 0
    resumed_from: int | None = None
    total_steps: int | None = None
    device_ids: tuple[str, ...] = ()
    register_only: bool = False
    """A driver: it is known to the sidecar and passes the run on, but has no step of its own and never records."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """
    A change of the selection while the run goes on. ``source`` is what made it, "" where that is not known.
    """

    steps: str
    revision: int
    stopped: bool
    source: str = ""


class WindowsSeam(Protocol):
    """
    The windows of this process. No method raises; all are called on the thread of the boundary call.
    """

    @property
    def recording(self) -> bool:
        """
        Whether a window records now. Read on every span: a plain attribute.
        """

    def outcome(self) -> Mapping[str, str]:
        """
        What became of the window asked for last: its ``state``, ``reason`` and ``window`` (id), each maybe empty.
        """

    def open(
        self, *, step: int, param_version: int, forced: bool = False, late: bool = False, roaming: bool = False
    ) -> bool:
        """
        Ask for a window and start its profiler; whether it records.
        """

    async def aopen(
        self, *, step: int, param_version: int, forced: bool = False, late: bool = False, roaming: bool = False
    ) -> bool:
        """
        The same, where the profiler's start may be a coroutine.
        """

    def started(self, *, trace_id: str, span_id: str) -> None:
        """
        The process's span has begun; ids in hex.
        """

    def close(self, *, version: int, reason: str = "boundary", incomplete: str = "") -> None:
        """
        Stop what records, if anything does; ``version`` is in force now.
        """

    async def aclose(self, *, version: int, reason: str = "boundary", incomplete: str = "") -> None:
        """
        The same, where the profiler's stop may be a coroutine.
        """

    def carries(self, step: int) -> bool:
        """
        Whether the window that records may go on into ``step``.
        """

    def extend(self, *, step: int, trace_id: str, span_id: str) -> None:
        """
        It has gone on into ``step``, whose process's span has begun; ids in hex.
        """

    def linger(self, *, version: int, incomplete: str = "") -> bool:
        """
        The step is over and nothing more is mirrored, but the profiler is left running for now; whether it is. What
        records goes on until :meth:`resume`, or a close, which finds the step's version, reason and flaw noted.
        """

    @property
    def lingering(self) -> bool:
        """
        Whether a profiler runs whose step is over.
        """

    def resume(self) -> None:
        """
        Work is about to go on: stop what lingers as soon as it has.
        """

    def span_started(self, span_id: int, name: str) -> int:
        """
        A span has begun on this thread while a window records: when its mark on the timeline did, in nanoseconds since
        1970, or when it was told that it came too late for one; 0 where it has none.
        """

    def span_ended(self, span_id: int) -> int:
        """
        A span has ended on this thread while a window records, or one that was told to :meth:`span_started`: when its
        mark did, or 0.
        """


class AgentSeam(Protocol):
    """
    The process's end of the control socket. No method raises; none but ``close`` waits longer than a deadline.
    """

    @property
    def windows(self) -> WindowsSeam:
        """
        The windows of this process.
        """

    def selected(self, step: int) -> bool:
        """
        Whether ``step`` is selected, from the local copy of the selection.
        """

    def records(self, step: int) -> bool:
        """
        Whether ``step`` is selected and recording is not stopped.
        """

    def entered(self, step: int, version: int, update_delay: float = 0.0) -> None:
        """
        The process entered ``step`` with ``version`` in force; profiling kept the update waiting for so many seconds.
        """

    def step_closed(self, step: int, partial: bool = False, version: int | None = None) -> None:
        """
        The process closed ``step``; ``version`` is in force now, where that is known already.
        """

    def samples(self, *, step: int, mini_batch: int, param_version: int, rows: Sequence[SampleRow]) -> None:
        """
        The samples that one mini-batch consumed.
        """

    def dropped(self, counts: Mapping[str, int]) -> None:
        """
        Spans that could not be delivered, by reason, since last told.
        """

    def take_stall(self) -> Mapping[str, float]:
        """
        Seconds by phase that the windows which have ended since the last call kept this process from its work.
        """

    def otlp_endpoint(self) -> str:
        """
        Base address of the sidecar's OTLP/HTTP receiver; empty while there is none.
        """

    def register_profiler(self, profiler: object) -> None:
        """
        Take an engine's profiler beside the built-in ones.
        """

    def close(self, timeout: float = 5.0) -> None:
        """
        Leave in order: say so to the sidecar and end the threads.
        """
