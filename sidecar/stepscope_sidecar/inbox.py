"""
The inbox: OTLP requests as they came, from their receipt until they are read into rows and forwarded.

All functions run in the transaction of their caller. Two cursors go over the inbox in order, ``index`` and
``forward``; what both have passed is deleted. Without an upstream nothing waits for ``forward``. The file itself
keeps in ``inbox_sums`` how much came until each request, so that what waits is known from the first and the last.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope_sidecar import chain, totals
from stepscope_sidecar.chain import Chain

RECEIVED = "stepscope_spans_received_total"
FORWARDED = "stepscope_spans_forwarded_total"
DROPPED = "stepscope_spans_dropped_total"

REASONS = (
    "rejected",
    "refused",
    "unreadable",
    "outbox_full",
    "looped",
    "buffer_full",
    "undelivered_at_exit",
    "after_shutdown",
    "unencodable",
)
"""
Why spans are lost, or not forwarded: the first five here, the others in a process of the run, which may also be
rejected there.
"""

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
    via: Chain = ()
    """The sidecars that it came through."""


def append(connection: sqlite3.Connection, body: bytes, *, spans: int, unix_ns: int, via: Chain = ()) -> int:
    """
    Keep ``body``, an OTLP trace request of ``spans`` spans that came by ``via``, and count it as received.
    """
    statement = "INSERT INTO inbox (received_unix_ns, spans, body, via) VALUES (?, ?, ?, ?)"
    row_id = connection.execute(statement, (unix_ns, spans, body, chain.written(via) or None)).lastrowid
    totals.add(connection, RECEIVED, {}, spans)
    return row_id or 0


def waiting(connection: sqlite3.Connection, *, parcels: int, limit: int) -> list[Parcel]:
    """
    The next requests to forward that can go together: by the chains that they came by, at most ``parcels``, and no
    more than ``limit`` bytes unless the first is larger.
    """
    found: list[Parcel] = []
    size = 0
    chains: list[Chain] = []
    cursor = connection.execute(
        "SELECT id, spans, via, length(body) AS bytes FROM inbox WHERE id >="
        " (SELECT inbox_id FROM cursor WHERE name = 'forward') ORDER BY id LIMIT ?",
        (parcels,),
    )
    for row in cursor.fetchall():
        size += row["bytes"]
        via = chain.read([row["via"] or ""])
        chains.append(via)
        if found and (size > limit or not chain.together(chains)):
            break
        body = connection.execute("SELECT body FROM inbox WHERE id = ?", (row["id"],)).fetchone()
        found.append(Parcel(id=row["id"], spans=row["spans"], body=body["body"], via=via))
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


def pass_over(connection: sqlite3.Connection, parcels: Sequence[Parcel]) -> None:
    """
    Do not forward ``parcels``, which have come round, and count their spans as such. They are read into rows as all.
    """
    _advance(connection, parcels[-1].id)
    totals.add(connection, DROPPED, {"reason": "looped"}, sum(parcel.spans for parcel in parcels))
    prune(connection, outbox=True)


def give_up(connection: sqlite3.Connection, *, limit: int) -> int:
    """
    Go past the oldest requests while those that wait for the upstream exceed ``limit`` bytes; says how many spans.

    The spans themselves are in the store already or will be; only the forwarding is given up.
    """
    excess = waiting_bytes(connection) - limit
    lost, last = 0, None
    rows = connection.execute(
        "SELECT id, spans, length(body) AS bytes FROM inbox"
        " WHERE id >= (SELECT inbox_id FROM cursor WHERE name = 'forward') ORDER BY id"
    )
    # Row by row: millions may wait, of which a few are given up.
    while excess > 0 and (row := rows.fetchone()):
        excess -= row["bytes"]
        lost += row["spans"]
        last = row["id"]
    rows.close()
    if last is None:
        return 0
    _advance(connection, last)
    totals.add(connection, DROPPED, {"reason": "outbox_full"}, lost)
    prune(connection, outbox=True)
    return lost


def pending(connection: sqlite3.Connection) -> int:
    """
    Spans that have not been forwarded.
    """
    return _behind(connection, "forward")[0]


def waiting_since(connection: sqlite3.Connection) -> int:
    """
    When the oldest request came that waits to be forwarded, in Unix nanoseconds; 0 where none does.
    """
    row = connection.execute(
        "SELECT received_unix_ns FROM inbox WHERE id >= (SELECT inbox_id FROM cursor WHERE name = 'forward')"
        " ORDER BY id LIMIT 1"
    ).fetchone()
    return int(row["received_unix_ns"]) if row else 0


def unread(connection: sqlite3.Connection) -> int:
    """
    Spans that have not been read into rows.
    """
    begun = connection.execute(
        "SELECT cursor.spans FROM cursor JOIN inbox ON inbox.id = inbox_id WHERE cursor.name = 'index'"
    ).fetchone()
    return _behind(connection, "index")[0] - (begun["spans"] if begun else 0)


def waiting_bytes(connection: sqlite3.Connection) -> int:
    """
    Bytes of the requests that wait to be forwarded.
    """
    return _behind(connection, "forward")[1]


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


def _behind(connection: sqlite3.Connection, cursor: str) -> tuple[int, int]:
    """
    Spans and bytes of the requests that ``cursor`` has not passed.
    """
    row = connection.execute(
        "SELECT last.spans - first.spans + inbox.spans AS spans, last.bytes - first.bytes + length(body) AS bytes"
        " FROM inbox JOIN inbox_sums AS first ON first.inbox_id = inbox.id"
        " JOIN inbox_sums AS last ON last.inbox_id = (SELECT max(inbox_id) FROM inbox_sums)"
        " WHERE inbox.id = (SELECT min(id) FROM inbox WHERE id >= (SELECT inbox_id FROM cursor WHERE name = ?))",
        (cursor,),
    ).fetchone()
    return (row["spans"], row["bytes"]) if row else (0, 0)
