"""
The inbox: OTLP requests as they came, from their receipt until they are read into rows and forwarded.

All functions run in the transaction of their caller. Two cursors go over the inbox in order, ``index`` and
``forward``; what both have passed is deleted. Without an upstream nothing waits for ``forward``.
"""

import sqlite3
from dataclasses import dataclass

from stepscope_sidecar import totals

RECEIVED = "stepscope_spans_received_total"
FORWARDED = "stepscope_spans_forwarded_total"
DROPPED = "stepscope_spans_dropped_total"

REFUSED_KEPT = 100
"""Requests set aside that are kept to be looked at; the count of dropped spans goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parcel:
    """
    One request in the inbox.
    """

    id: int
    spans: int
    body: bytes


def append(connection: sqlite3.Connection, body: bytes, *, spans: int, unix_ns: int) -> int:
    """
    Keep ``body``, an OTLP trace request of ``spans`` spans, and count it as received.
    """
    statement = "INSERT INTO inbox (received_unix_ns, spans, body) VALUES (?, ?, ?)"
    row_id = connection.execute(statement, (unix_ns, spans, body)).lastrowid
    totals.add(connection, RECEIVED, {}, spans)
    return row_id or 0


def waiting(connection: sqlite3.Connection, *, parcels: int, limit: int) -> list[Parcel]:
    """
    The next requests to forward: at most ``parcels``, and no more than ``limit`` bytes unless the first is larger.
    """
    found: list[Parcel] = []
    size = 0
    cursor = connection.execute(
        "SELECT id, spans, length(body) AS bytes FROM inbox WHERE id >="
        " (SELECT inbox_id FROM cursor WHERE name = 'forward') ORDER BY id LIMIT ?",
        (parcels,),
    )
    for row in cursor.fetchall():
        size += row["bytes"]
        if found and size > limit:
            break
        body = connection.execute("SELECT body FROM inbox WHERE id = ?", (row["id"],)).fetchone()
        found.append(Parcel(id=row["id"], spans=row["spans"], body=body["body"]))
    return found


def forwarded(connection: sqlite3.Connection, *, last: int, spans: int, rejected: int = 0) -> None:
    """
    The upstream has everything up to request ``last``; it accepted ``spans`` and rejected ``rejected`` of them.
    """
    _advance(connection, last)
    totals.add(connection, FORWARDED, {}, spans)
    if rejected:
        totals.add(connection, DROPPED, {"reason": "rejected"}, rejected)
    prune(connection, outbox=True)


def set_aside(
    connection: sqlite3.Connection, parcel: Parcel, *, status: int, message: str, unix_ns: int, reason: str
) -> None:
    """
    Nobody will take ``parcel``: keep it to be looked at, count its spans as dropped, and go past it.
    """
    refuse(connection, parcel, status=status, message=message, unix_ns=unix_ns, reason=reason)
    _advance(connection, parcel.id)
    prune(connection, outbox=True)


def refuse(
    connection: sqlite3.Connection, parcel: Parcel, *, status: int, message: str, unix_ns: int, reason: str
) -> None:
    """
    Keep ``parcel`` to be looked at and count its spans as dropped.
    """
    connection.execute(
        "INSERT INTO refused (unix_ns, status, message, spans, body) VALUES (?, ?, ?, ?, ?)",
        (unix_ns, status, message, parcel.spans, parcel.body),
    )
    connection.execute("DELETE FROM refused WHERE id <= (SELECT max(id) FROM refused) - ?", (REFUSED_KEPT,))
    totals.add(connection, DROPPED, {"reason": reason}, parcel.spans)


def give_up(connection: sqlite3.Connection, *, limit: int) -> int:
    """
    Go past the oldest requests while those that wait for the upstream exceed ``limit`` bytes; says how many spans.

    The spans themselves are in the store already or will be; only the forwarding is given up.
    """
    start = connection.execute("SELECT inbox_id FROM cursor WHERE name = 'forward'").fetchone()["inbox_id"]
    sizes = connection.execute(
        "SELECT id, spans, length(body) AS bytes FROM inbox WHERE id >= ? ORDER BY id", (start,)
    ).fetchall()
    excess = sum(row["bytes"] for row in sizes) - limit
    lost = 0
    for row in sizes:
        if excess <= 0:
            break
        excess -= row["bytes"]
        lost += row["spans"]
        _advance(connection, row["id"])
    if lost:
        totals.add(connection, DROPPED, {"reason": "outbox_full"}, lost)
        prune(connection, outbox=True)
    return lost


def pending(connection: sqlite3.Connection) -> int:
    """
    Spans that have not been forwarded.
    """
    row = connection.execute(
        "SELECT coalesce(sum(spans), 0) AS spans FROM inbox"
        " WHERE id >= (SELECT inbox_id FROM cursor WHERE name = 'forward')"
    ).fetchone()
    return int(row["spans"])


def waiting_bytes(connection: sqlite3.Connection) -> int:
    """
    Bytes of the requests that wait to be forwarded.
    """
    row = connection.execute(
        "SELECT coalesce(sum(length(body)), 0) AS bytes FROM inbox"
        " WHERE id >= (SELECT inbox_id FROM cursor WHERE name = 'forward')"
    ).fetchone()
    return int(row["bytes"])


def prune(connection: sqlite3.Connection, *, outbox: bool) -> None:
    """
    Delete what is read into rows and, with an ``outbox``, forwarded.
    """
    readers = "('index', 'forward')" if outbox else "('index')"
    connection.execute(
        f"DELETE FROM inbox WHERE id < (SELECT min(inbox_id) FROM cursor WHERE name IN {readers})"  # noqa: S608 - constants
    )


def _advance(connection: sqlite3.Connection, last: int) -> None:
    connection.execute("UPDATE cursor SET inbox_id = max(inbox_id, ?) WHERE name = 'forward'", (last + 1,))
