"""
Which recordings of a step were to be expected, and which of them were not made (W9).

Pure. The controller says who entered a step, whether it was selected for them then, and how their windows ended; for
pages the store says what was found then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepscope.names import Reason, State
from stepscope.selection import Ranks
from stepscope_sidecar.rows import MissingRow, WindowRow

NEVER_REGISTERED = "never_registered"
"""A rank within a declared world size that has not been heard of."""

NOT_ASKED = "not_asked"
"""A process that entered the step alive, and asked for no window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """
    A process as far as one step is concerned.
    """

    role: str
    rank: int
    entered: bool
    """It reached the version that is in force in the step."""
    expected: bool
    """The step was selected, and its rank, when it entered."""
    decided: bool
    """It has ended, or has closed the next step: its windows of this one are over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """
    A recording that was expected and was not made.
    """

    role: str
    rank: int
    reason: str


def missing(
    members: Iterable[Member],
    *,
    windows: Mapping[tuple[str, int], tuple[State, str]],
    world: Mapping[str, int],
    ranks: Ranks,
) -> list[Missing] | None:
    """
    The recordings of one step that are missing, or ``None`` while it cannot be said yet.

    Args:
        members: every process registered with this sidecar.
        windows: state and reason of the step's window, by role and rank.
        world: the declared world size of each role.
        ranks: the selected ranks.
    """
    found: list[Missing] = []
    seen: set[tuple[str, int]] = set()
    concerned: set[str] = set()
    for member in members:
        seen.add((member.role, member.rank))
        if not (member.entered and member.expected):
            continue
        if not member.decided:
            return None
        concerned.add(member.role)
        state, reason = windows.get((member.role, member.rank), (None, NOT_ASKED))
        if state is not None and not state.final:
            return None
        if state is not State.READY:
            found.append(Missing(role=member.role, rank=member.rank, reason=reason or str(state)))
    for role, size in world.items():
        if role in concerned:
            found.extend(
                Missing(role=role, rank=rank, reason=NEVER_REGISTERED)
                for rank in range(size)
                if (role, rank) not in seen and ranks.holds(role=role, rank=rank)
            )
    return sorted(found, key=lambda item: (item.role, item.rank))


def accounted(windows: Iterable[WindowRow], missing: Iterable[MissingRow]) -> list[tuple[str, int, str]]:
    """
    The processes that were to be recorded in a step, each with why it was not, or "": those that asked for a window,
    and those that the sidecar found ``missing``.
    """
    found: dict[tuple[str, int], str] = {}
    for row in windows:
        if row.other.get("beside") or row.reason == Reason.RANK_NOT_SELECTED:
            continue
        key = (row.role, row.rank)
        if row.state == State.READY:
            found[key] = ""
        elif State(row.state).final and found.get(key, "-"):
            # A denial of a window that a second try then got says nothing.
            found[key] = row.reason or row.state
    for one in missing:
        found.setdefault((one.role, one.rank), one.reason)
    return [(role, rank, why) for (role, rank), why in sorted(found.items())]
