"""
Windows that nobody will end: their sidecar was killed and never started again, and their processes are gone.

Their rows in the store stay as they are, because a sidecar that is started for the attempt still finishes them. Who
reads them without one is told how they stand, and which processes of the run live.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepscope import ids
from stepscope.names import Reason, State
from stepscope_sidecar import lifecycle
from stepscope_sidecar.rows import ProcessRow, WindowRow
from stepscope_sidecar.surroundings import alive

Alive = Callable[[int, int], bool]
"""Whether a process, by pid and start, lives."""


def attended(folder: Path) -> bool:
    """
    Whether a sidecar of this node runs for the attempt in ``folder``.
    """
    socket = lifecycle.announced(folder).get("socket")
    return isinstance(socket, str) and lifecycle.held(Path(socket))


def shown(
    rows: Iterable[WindowRow], *, attended: bool, node: str | None = None, alive: Alive = alive
) -> list[WindowRow]:
    """
    ``rows`` as a reader should see them: those that nobody will end are ``aborted: sidecar_lost``.
    """
    here = node or ids.node()
    return [_ended(row) if not attended and _orphan(row, here, alive) else row for row in rows]


def lives(row: ProcessRow) -> bool | None:
    """
    Whether a process lives; None where it is of another node, of which nothing is known here.
    """
    if row.ended_unix_ns:
        return False
    return alive(row.pid, row.process_start) if row.node == ids.node() else None


def processes(rows: Iterable[ProcessRow], *, attended: bool) -> list[dict[str, Any]]:
    """
    The processes of a run and which of them live: as its sidecar has written it, or, without one, as is seen here.
    """
    return [
        {
            "role": row.role,
            "rank": row.rank,
            "pid": row.pid,
            "alive": not row.ended_unix_ns if attended else lives(row),
        }
        for row in rows
    ]


def _orphan(row: WindowRow, node: str, alive: Alive) -> bool:
    # Of another node nothing is known here.
    return not State(row.state).final and row.node == node and not alive(row.pid, row.process_start)


def _ended(row: WindowRow) -> WindowRow:
    return replace(row, state=State.ABORTED, reason=Reason.SIDECAR_LOST)
