"""
May a window open now? A pure decision over what the control loop knows; the order of the questions is the contract.

Owns no state. The first reason that holds is the answer, so that a person reads the one that matters: what they
configured first, what is in the way next, what it costs last.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stepscope.names import Reason
from stepscope.selection import Ranks, Selection
from stepscope_sidecar.windows import Windows

NOT_OFFERED = "the process offers no such profiler"
"""Why a tool is unavailable that the process did not name: one of somebody's own that was not registered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """
    What a process asks for.
    """

    step: int
    role: str
    rank: int
    process: tuple[int, int]
    tool: str
    devices: tuple[str, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    """The process's profilers, each with "" or why it is unavailable."""
    forced: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """
    What holds at the moment of asking.
    """

    selection: Selection
    ranks: Ranks
    stopped: bool = False
    overhead: float | None = None
    """The role's measured ratio, or what it is at least; None while nothing is known of it, which denies nothing."""
    max_overhead: float | None = None
    device_held: bool = False
    """A tool of a window that is over is still on one of the devices that are asked for."""
    disk_left: int = 1
    """Bytes that may still be kept."""


def decide(ask: Ask, rules: Rules, windows: Windows) -> Reason | None:
    """
    Why the window is denied, or ``None``: granted.
    """
    if rules.stopped:
        return Reason.STOPPED_BY_USER
    if not ask.forced and ask.step not in rules.selection:
        return Reason.STEP_NOT_SELECTED
    if not rules.ranks.holds(role=ask.role, rank=ask.rank):
        return Reason.RANK_NOT_SELECTED
    if windows.of_key((ask.step, ask.role, ask.rank, ask.tool), process=ask.process) is not None:
        return Reason.DUPLICATE
    if windows.leased(process=ask.process):
        return Reason.BUSY_PROCESS
    if rules.device_held or (ask.devices and windows.holder(ask.devices) is not None):
        return Reason.BUSY_DEVICE
    if ask.tools.get(ask.tool, NOT_OFFERED):
        return Reason.TOOL_UNAVAILABLE
    if rules.max_overhead is not None and rules.overhead is not None and rules.overhead > rules.max_overhead:
        return Reason.BUDGET_OVERHEAD
    if rules.disk_left <= 0:
        return Reason.BUDGET_DISK
    return None
