"""
Which mirrored span a moment of a thread belongs to: the innermost of those that are open then.

Pure. Where spans run side by side, as on an event loop, what is innermost is told by their parents; where nothing tells
it, a moment belongs to none of them.
"""

import sys
from collections.abc import Mapping, Sequence, Set

from stepscope_sidecar.traces.marks import Mark
from stepscope_sidecar.traces.trace import NONE

Lineage = Mapping[int, Set[str]]
"""The ids of a mark's span and of those above it, by the mark's event."""


def lineage(marks: Sequence[Mark], parents: Mapping[str, str]) -> Lineage:
    """
    The spans above each mark's.
    """
    return {one.row: _above(one.span_id, parents) for one in marks}


def owners(
    moments: Sequence[int], marks: Sequence[Mark], lines: Lineage | None = None, *, nested: bool = True
) -> Sequence[int]:
    """
    The event of the mark that each of the ``moments``, which are in order, belongs to; ``NONE`` for none or several.

    Args:
        moments: of one thread, or of one process.
        marks: those that count, by start.
        lines: the spans above each. Without it those that are open are one inside the other, if they are ``nested``, as
            on one thread that runs no event loop; if that is not known, they have to be within each other in time.
        nested: see ``lines``.
    """
    found = []
    open_: list[Mark] = []
    coming, owner, changes = 0, NONE, -sys.maxsize
    for moment in moments:
        if moment >= changes:
            while coming < len(marks) and marks[coming].start_ns <= moment:
                open_.append(marks[coming])
                coming += 1
            open_ = [mark for mark in open_ if mark.end_ns > moment]
            owner = _inner(open_, lines, nested=nested)
            changes = min((mark.end_ns for mark in open_), default=sys.maxsize)
            if coming < len(marks):
                changes = min(changes, marks[coming].start_ns)
        found.append(owner)
    return found


def _inner(open_: Sequence[Mark], lines: Lineage | None, *, nested: bool) -> int:
    """
    The innermost of the marks that are open, by start, in line with all others.
    """
    if not open_:
        return NONE
    if lines is None:
        last = open_[-1]
        return last.row if nested or all(last.end_ns <= other.end_ns for other in open_) else NONE
    for mark in reversed(open_):
        above = lines[mark.row]
        if all(other.span_id in above or mark.span_id in lines[other.row] for other in open_):
            return mark.row
    return NONE


def _above(span_id: str, parents: Mapping[str, str]) -> Set[str]:
    found = {span_id}
    while (span_id := parents.get(span_id, "")) and span_id not in found:
        found.add(span_id)
    return found
