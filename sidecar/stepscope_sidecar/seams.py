"""
What the controller asks of the world around it, and what it tells to be kept: the seams that tests stand in for.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stepscope import wire
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.rows import MissingRow
from stepscope_sidecar.windows import Window


class Ledger(Protocol):
    """
    Keeps what the controller says. No method waits.
    """

    def window(self, window: Window, *, before: Window | None) -> None:
        """
        A window is new (``before`` is None) or has changed.
        """

    def process(self, process: Process) -> None:
        """
        A process is new or has changed.
        """

    def plan(self, plan: Plan) -> None:
        """
        The plan has changed.
        """

    def samples(self, message: wire.Samples) -> None:
        """
        A mini-batch has consumed samples.
        """

    def dropped(self, spans: Mapping[str, int]) -> None:
        """
        A process could not deliver spans, by reason.
        """

    def tool(self, role: str, tool: str) -> None:
        """
        Windows of ``role`` will be by ``tool``.
        """

    def missing(self, by_role: Mapping[str, int], found: Sequence[MissingRow]) -> None:
        """
        So many recordings of the last decided step are missing; those in ``found`` have just been decided.
        """

    def update_delayed(self, role: str, seconds: float) -> None:
        """
        Count ``seconds`` that profiling kept an update of a process of ``role`` waiting.
        """

    def finalise_cpu(self, seconds: float) -> None:
        """
        Finalising a window took so much CPU.
        """


class Attached(Protocol):
    """
    The tools that the sidecar runs against processes, as the control loop tells of windows. No method waits.
    """

    def offers(self) -> Mapping[str, str]:
        """
        Each such tool, and "" or why it cannot be used here.
        """

    def holds(self, devices: Collection[str], *, process: tuple[int, int]) -> bool:
        """
        Whether such a tool is still on one of ``devices``, though its window is over, for another process.
        """

    def started(self, window: Window, message: wire.Started, *, pid: int) -> None:
        """
        The step of ``window`` has begun in process ``pid``: its tool is to be started.
        """

    def closing(self, window: Window, record: wire.Closed) -> wire.Closed:
        """
        The step of ``window`` is over, and this is what its process says; answers what its tool says.
        """

    def changed(self, window: Window, *, before: Window | None) -> None:
        """
        A window, of whatever tool, is new or has changed.
        """


class NoneAttached:
    """
    There are no such tools.
    """

    def offers(self) -> Mapping[str, str]:
        """
        None.
        """
        return {}

    def holds(self, devices: Collection[str], *, process: tuple[int, int]) -> bool:  # noqa: ARG002 - a protocol's
        """
        None is.
        """
        return False

    def started(self, window: Window, message: wire.Started, *, pid: int) -> None:
        """
        Never called: none was offered.
        """

    def closing(self, window: Window, record: wire.Closed) -> wire.Closed:  # noqa: ARG002 - a protocol's
        """
        What the process says.
        """
        return record

    def changed(self, window: Window, *, before: Window | None) -> None:
        """
        Of no concern.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """
    What the controller asks of its surroundings, each answered at once.
    """

    unix_ns: Callable[[], int]
    monotonic: Callable[[], float]
    record: Callable[[Window], wire.Closed | None]
    """The close record in a window's folder."""
    alive: Callable[[int, int], bool]
    """Whether the process of that pid and start lives."""
    disk_left: Callable[[], int]
    """Bytes of recordings that may still be kept."""
    overhead: Callable[[str], float | None]
    """A role's measured overhead ratio, or what it is at least; None while nothing is known of it."""
    finalise: Callable[[Window, wire.Closed], None]
    """Hands a closed window to the finaliser, whose result comes back later."""
    otlp: Callable[[], str]
    """Base address of the OTLP/HTTP receiver."""
    written: Callable[[Window], int] = lambda _: 0
    """Bytes in a window's folder."""
    attached: Attached = field(default_factory=NoneAttached)
    """The tools that record processes from outside."""
    alone: Callable[[], bool] = lambda: True
    """Whether no other node takes part in the run, as far as is known."""
    troubles: Callable[[], list[str]] = list
    """What a process that registers has to be warned of, beyond what the controller knows."""
