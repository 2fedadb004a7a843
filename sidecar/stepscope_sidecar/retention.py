"""
Which recordings have been kept long enough. A pure decision; removing them is ``removal``'s.

A step's recordings go together, and so do those of steps that share a window. What is not final yet stays, and so does
the newest final step where bytes alone are the reason: one recording that is too large is better than none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepscope import names

TOO_OLD = f"older than {names.KEEP_SECONDS}"
TOO_MUCH = f"to keep within {names.KEEP_BYTES}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """
    The recordings that lie in one step's folder.
    """

    step: int
    last_step: int
    """The last step that a window among them covers."""
    bytes: int
    closed_unix_ns: int
    """When the last of them was closed; 0 where that is not known."""
    busy: bool
    """Whether anything in it is not final, or has yet to be copied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Doomed:
    """
    Steps whose recordings are to go together.
    """

    steps: tuple[int, ...]
    why: str


def decide(kept: Iterable[Kept], *, unix_ns: int, keep_seconds: float | None, keep_bytes: int | None) -> list[Doomed]:
    """
    What is to go now, oldest steps first; None limits nothing.
    """
    groups = _together(kept)
    final = [group for group in groups if not any(one.busy or not one.closed_unix_ns for one in group)]
    # What is not final is still as its profiler wrote it, many times as large as it will be: none has to go for that.
    total = sum(one.bytes for group in final for one in group)
    found: list[Doomed] = []
    for number, group in enumerate(final):
        age = (unix_ns - max(one.closed_unix_ns for one in group)) / 1e9
        newest = number == len(final) - 1
        if keep_seconds is not None and age > keep_seconds:
            why = TOO_OLD
        elif keep_bytes is not None and total > keep_bytes and not newest:
            why = TOO_MUCH
        else:
            continue
        found.append(Doomed(steps=tuple(one.step for one in group), why=why))
        total -= sum(one.bytes for one in group)
    return found


def _together(kept: Iterable[Kept]) -> Sequence[Sequence[Kept]]:
    """
    Folders in the order of their steps, those together that a shared window joins.
    """
    groups: list[list[Kept]] = []
    reached = -1
    for one in sorted(kept, key=lambda one: one.step):
        if groups and one.step <= reached:
            groups[-1].append(one)
        else:
            groups.append([one])
        reached = max(reached, one.step, one.last_step)
    return groups
