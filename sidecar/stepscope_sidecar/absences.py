"""
Recordings that other nodes have found to be missing: which of them are told upstream, and what is kept there.

A node says of its own processes alone what they did not record. All functions run in the transaction of their caller.
"""

import sqlite3
from collections.abc import Iterable

from stepscope_sidecar import rows
from stepscope_sidecar.expected import NEVER_REGISTERED
from stepscope_sidecar.rows import MissingElsewhere, MissingRow

MAX_KEPT = 100_000
"""Of all nodes: a thousand ranks that record nothing in a hundred selected steps. About 15 MB."""

MAX_ROLE = 256
"""Characters of a role that is told: reports are bounded, and no role of a person is longer."""

COUNT = "SELECT count(*) FROM node_missing"
OLDEST = "DELETE FROM node_missing WHERE rowid IN (SELECT rowid FROM node_missing ORDER BY rowid LIMIT ?)"


def own(found: Iterable[MissingRow]) -> list[MissingRow]:
    """
    Those of ``found`` that an upstream is told: not of ranks that were never heard of here, which may be another
    node's; that this node was alone then is because no upstream had answered yet.
    """
    return [row for row in found if row.reason != NEVER_REGISTERED and len(row.role) <= MAX_ROLE]


def keep(connection: sqlite3.Connection, found: Iterable[MissingRow], *, node: str, run: str, attempt: str) -> None:
    """
    Keep what ``node`` has ``found``; what came first makes room.
    """
    told = [
        MissingElsewhere(
            node=node, run=run, attempt=attempt, step=row.step, role=row.role, rank=row.rank, reason=row.reason
        )
        for row in found
    ]
    if not told:
        return
    for row in told:
        connection.execute(rows.upsert(row, "node_missing"), rows.values(row))
    if (more := connection.execute(COUNT).fetchone()[0] - MAX_KEPT) > 0:
        connection.execute(OLDEST, (more,))
