"""
Which window somebody means, and which one of the same process came before it.

Pure: works on windows as the store has them.
"""

from collections.abc import Iterable, Sequence

from stepscope.errors import StepscopeError
from stepscope.names import State
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar.labels import process_name, step_name
from stepscope_sidecar.rows import WindowRow

MAX_NAMED = 5
"""Windows that an error lists."""


class LookupFailedError(StepscopeError):
    """
    No window, or more than one, is meant; the message says which there are.
    """


def chosen(rows: Sequence[WindowRow], wanted: str) -> WindowRow:
    """
    The window whose id is ``wanted``, or begins so; with "" the one that was recorded last.

    Raises:
        LookupFailedError: there is none, or there are several.
    """
    if not rows:
        raise LookupFailedError("no window was asked for in this run; see `stepscope windows` and `stepscope status`")
    if not wanted:
        recorded = [row for row in rows if row.artifact]
        return max(recorded or rows, key=lambda row: (row.closed_unix_ns, row.asked_unix_ns, row.step))
    exact = [row for row in rows if row.window == wanted]
    found = exact or [row for row in rows if row.window.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise LookupFailedError(
            f"no window {wanted!r} in this run: no id is that or begins with it; it has {_listed(rows)}."
            " `stepscope windows` lists them, --run names another run"
        )
    raise LookupFailedError(f"{wanted!r} is the beginning of {len(found)} windows: {_listed(found)}; give more of it")


def before(rows: Iterable[WindowRow], row: WindowRow) -> WindowRow | None:
    """
    The last recording before that of ``row`` by the same tool at the same level of the same process.
    """
    earlier = [
        one for one in rows if one.state == State.READY and one.artifact and one.step < row.step and _same(one, row)
    ]
    return max(earlier, key=lambda one: (one.step, one.closed_unix_ns), default=None)


def _same(one: WindowRow, other: WindowRow) -> bool:
    if (one.role, one.rank, one.tool, one.level) != (other.role, other.rank, other.tool, other.level):
        return False
    # Recorded from outside, it may be another process than the one of that role and rank.
    return other.tool not in LEAVES or one.pid == other.pid


def _listed(rows: Sequence[WindowRow]) -> str:
    named = [f"{row.window} ({step_name(row.step, row.last_step)}, {process_name(row.role, row.rank)})" for row in rows]
    more = len(named) - MAX_NAMED
    return ", ".join(named[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
