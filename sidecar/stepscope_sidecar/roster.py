"""
The run as all nodes together show it: their windows, what is missing, and the nodes themselves.

Reads; decides nothing. Windows of this node come from its own table, those of others as they were last reported.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from stepscope.names import State
from stepscope_sidecar.reader import Reader
from stepscope_sidecar.rows import MissingRow, NodeRow, Value, WindowRow

PRESENT, ENDED, VANISHED = "present", "ended", "vanished"
"""How a node stands."""


def window_objects(
    own: Iterable[WindowRow], elsewhere: Iterable[WindowRow], *, directory: Path
) -> list[dict[str, Value]]:
    """
    What ``stepscope windows --json`` and the API print, in the order of steps, roles and ranks.
    """
    told = [(row, row.json(directory=directory)) for row in own]
    told += [(row, row.json(directory=None)) for row in elsewhere]
    return [found for _, found in sorted(told, key=lambda pair: place(pair[0]))]


def place(row: WindowRow) -> tuple[int, str, int, str, str, int, str]:
    """
    Where ``row`` comes in a list of all nodes.
    """
    return (row.step, row.role, row.rank, row.node, row.tool, row.asked_unix_ns, row.window)


def stands(node: NodeRow) -> str:
    """
    Whether ``node`` is heard of.
    """
    if node.ended_unix_ns:
        return ENDED
    return VANISHED if node.vanished_unix_ns else PRESENT


def node_objects(reader: Reader) -> list[dict[str, Value]]:
    """
    The other nodes as the API prints them.
    """
    counts = counted(reader.elsewhere())
    return [
        {
            "node": row.node,
            "run": row.run,
            "attempt": row.attempt,
            "state": stands(row),
            "http": row.http,
            "heard_unix_ns": row.heard_unix_ns,
            "clock_offset_seconds": None if row.offset_ns is None else row.offset_ns / 1e9,
            "clock_error_seconds": None if row.error_ns is None else row.error_ns / 1e9,
            "windows": dict(counts.get((row.node, row.run, row.attempt), {})),
        }
        for row in reader.nodes()
    ]


def missing_objects(reader: Reader, *, node: str, step: int | None = None) -> list[dict[str, Value]]:
    """
    The recordings that are missing, as the API prints them: of this ``node`` and of the others, in the order of steps,
    roles and ranks.
    """
    run, attempt = reader.meta.get("run", ""), reader.meta.get("attempt", "")
    told: list[tuple[MissingRow, tuple[str, str, str]]] = [
        (row, (node, run, attempt)) for row in reader.missing(step=step)
    ]
    told += [(row, (row.node, row.run, row.attempt)) for row in reader.missing_elsewhere(step=step)]
    told.sort(key=lambda pair: (pair[0].step, pair[0].role, pair[0].rank, pair[1]))
    return [
        {
            "node": where[0],
            "run": where[1],
            "attempt": where[2],
            "step": row.step,
            "role": row.role,
            "rank": row.rank,
            "reason": row.reason,
        }
        for row, where in told
    ]


def counted(windows: Iterable[WindowRow]) -> Mapping[tuple[str, str, str], Mapping[str, int]]:
    """
    How many windows each node has in which state.
    """
    counts: dict[tuple[str, str, str], dict[str, int]] = {}
    for row in windows:
        states = counts.setdefault((row.node, row.run, row.attempt), {})
        states[State(row.state).value] = states.get(State(row.state).value, 0) + 1
    return counts
