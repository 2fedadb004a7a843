"""
What the controller asks of the world around it, and what it tells to be kept: the seams that tests stand in for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from stepscope import wire
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
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

    def finalise_cpu(self, seconds: float) -> None:
        """
        Finalising a window took so much CPU.
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
    """A role's measured overhead ratio; None while unknown."""
    finalise: Callable[[Window, wire.Closed], None]
    """Hands a closed window to the finaliser, whose result comes back later."""
    endpoints: Callable[[], tuple[str, str]]
    """Base addresses of OTLP/HTTP and of the pages."""
