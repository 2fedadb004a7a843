"""
The part of a run's page that tells of the other nodes: who reports, since when not, and how far its clock is.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepscope_sidecar.labels import some
from stepscope_sidecar.pages.html import Content, Markup, table, tag
from stepscope_sidecar.roster import VANISHED, stands
from stepscope_sidecar.rows import NodeRow, WindowRow

COLUMNS = ("node", "run", "state", "last heard", "clock", "windows", "sidecar")


@dataclass(frozen=True, kw_only=True, slots=True)
class Others:
    """
    What other nodes have reported; ``counted`` says of each how many windows it has in which state.
    """

    nodes: Sequence[NodeRow] = ()
    windows: Sequence[WindowRow] = ()
    counted: Mapping[tuple[str, str, str], Mapping[str, int]] = field(default_factory=dict)


def nodes_section(others: Others, *, own: str, ordered: object = None) -> list[Content]:
    """
    The section, of nothing where no other node reports. ``own`` is the node that the page is of, ``ordered`` whom the
    last order has reached.
    """
    if not others.nodes:
        return []
    return [
        tag("h2", "Nodes"),
        tag(
            "p",
            f"Clocks are compared with that of {own or 'this node'}. Times are shown as each node wrote them.",
            kind="dim",
        ),
        *_last_order(ordered),
        table(COLUMNS, (_cells(row, others) for row in others.nodes)),
    ]


def clock(row: NodeRow) -> str:
    """
    How far the clock of a node is, and how sure that is.
    """
    if row.offset_ns is None or row.error_ns is None:
        return "not known yet"
    # What has to be added to its clock is what it is behind.
    return f"{-row.offset_ns / 1e6:+.1f} ms ± {row.error_ns / 1e6:.1f} ms"


def _last_order(ordered: object) -> list[Content]:
    if not isinstance(ordered, Mapping) or not ordered.get("order"):
        return []
    reached, waiting = (found if isinstance(found := ordered.get(key), list) else [] for key in ("reached", "waiting"))
    told = f"Last order: {ordered['order']}. Obeyed by {some(reached) or 'no other node yet'}"
    return [
        tag(
            "p",
            f"{told}; not yet by {some(waiting)}, who hear of it with their next report." if waiting else f"{told}.",
        )
    ]


def _cells(row: NodeRow, others: Others) -> tuple[Content, ...]:
    states = others.counted.get((row.node, row.run, row.attempt), {})
    return (
        row.node,
        f"{row.run} {row.attempt}",
        _state(row),
        time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row.heard_unix_ns / 1e9)),
        clock(row),
        ", ".join(f"{count} {state}" for state, count in states.items()),
        row.http or "cannot be asked from here",
    )


def _state(row: NodeRow) -> Markup:
    state = stands(row)
    return tag("span", state, kind="bad" if state == VANISHED else "good" if not row.ended_unix_ns else "dim")
