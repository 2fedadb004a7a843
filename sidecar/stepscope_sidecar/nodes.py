"""
The upstream's side of reports: keeps what other nodes tell, and notices which of them is heard of no more.

Owns the rows of other nodes, and no others: what a node says can change nothing of this node's own windows. Every
report that is answered is in the store. What is kept is bounded: runs that are over make room, and what there is no
room for is said. Artifacts stay where they are; ``remote`` fetches them.
"""

import asyncio
import ipaddress
import logging
import secrets
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from stepscope.names import State
from stepscope_sidecar import absences, rows
from stepscope_sidecar.errors import IntakeError, StoreError
from stepscope_sidecar.intake import BUSY_WAIT, RESOURCE_EXHAUSTED, UNAVAILABLE
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.report import DOUBLE, Report
from stepscope_sidecar.reporter import Teller
from stepscope_sidecar.rows import NodeRow
from stepscope_sidecar.sequences import Sequences
from stepscope_sidecar.store import Store

LOG = logging.getLogger(__name__)

T = TypeVar("T")

VANISHED = 30.0
"""Seconds without a word from a node that reports every 5 s: six reports in a row did not come."""

MAX_NODES = 10_000
"""Nodes that are kept: the largest runs have that many, and beyond it somebody makes names up."""

MAX_WINDOWS = 100_000
"""Windows of other nodes that are kept: about 100 MB, and a page that takes a second or two to make."""

MAX_OF_NODE = 20_000
"""Windows of one node: eight ranks that record each of 2,500 steps."""

KEEPER = "keeper"
"""In the store's ``meta``: a name for this very file, by which nodes notice that they report to another."""

KNOWN = 'SELECT state FROM node_windows WHERE node = ? AND run = ? AND attempt = ? AND "window" = ?'

MAX_TOLD = 10
"""Nodes of which it is said that something is not kept; the others are in the log of their sidecars."""

CONFLICT = 6
"""gRPC's ALREADY_EXISTS."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """
    A report is kept by ``keeper``.
    """

    keeper: str
    known: bool
    """Whether the node was known before: one that is not tells everything again."""
    refused: str
    """Why some of its windows are not kept; "" where all are."""
    late: bool = False
    """Whether a later one was kept before: nothing of this one is."""


class Nodes:
    """
    The other nodes. Use it in the event loop alone.
    """

    def __init__(
        self,
        store: Store,
        own: Teller,
        *,
        unix_ns: Callable[[], int],
        monotonic: Callable[[], float],
        forgotten: Callable[[Teller], None] = lambda _: None,
    ) -> None:
        """
        Keep them in ``store``; nodes that a former sidecar knew have their time anew. ``own`` is this node.
        ``forgotten`` is told of each that had to make room.
        """
        self._forgotten = forgotten
        self._store = store
        self._own = own
        self._unix_ns, self._monotonic = unix_ns, monotonic
        with open_reader(store.path) as reader:
            known = reader.nodes()
            self._keeper = reader.meta.get(KEEPER) or secrets.token_hex(8)
            counts = reader.elsewhere_counts()
        self._windows = {_teller(row): counts.get((row.node, row.run, row.attempt), 0) for row in known}
        self._total = sum(self._windows.values())
        self._last = {_teller(row): row.heard_unix_ns for row in known}
        self._refused: dict[Teller, str] = {}
        self._sequences: Sequences[Teller] = Sequences()
        self._full = ""
        self._doubles: dict[Teller, str] = {}
        self._ended = {_teller(row): row.ended_unix_ns for row in known}
        self._heard = {_teller(row): monotonic() for row in known if not row.vanished_unix_ns}

    @property
    def present(self) -> list[Teller]:
        """
        The nodes that are heard of and have not ended.
        """
        return [teller for teller in self._heard if not self._ended.get(teller)]

    @property
    def alone(self) -> bool:
        """
        Whether no other node of this node's own attempt has reported.
        """
        own = (self._own.run, self._own.attempt)
        return not any((teller.run, teller.attempt) == own for teller in self._ended)

    @property
    def troubles(self) -> list[str]:
        """
        What is not kept of other nodes: for want of room, or because two have one name.
        """
        told = [*self._doubles.values(), *self._refused.values()]
        return [*([self._full] if self._full else []), *told[:MAX_TOLD]]

    async def take(self, report: Report, *, peer: str) -> Taken:
        """
        Keep ``report``, which came from the address ``peer``, and answer once it is durable.

        Raises:
            IntakeError: it tells of this node itself, or cannot be kept now.
        """
        teller = Teller(node=report.node, run=report.run, attempt=report.attempt)
        if teller == self._own:
            message = f"node {report.node} of this attempt is this sidecar; set STEPSCOPE_NODE, or another upstream"
            raise IntakeError(message, status=409, code=CONFLICT)
        if self._sequences.displaced(teller, instance=report.instance, sequence=report.sequence):
            message = f"two sidecars of {report.run}-{report.attempt} report as node {report.node}; set STEPSCOPE_NODE"
            if teller not in self._doubles:
                LOG.warning("%s on one of them", message)
            self._doubles[teller] = message
            raise IntakeError(message, status=DOUBLE, code=CONFLICT)
        if self._sequences.late(teller, instance=report.instance, sequence=report.sequence):
            return Taken(keeper=self._keeper, known=True, refused="", late=True)
        known = teller in self._ended
        if not known and len(self._ended) >= MAX_NODES and not self._make_room():
            self._sequences.forget(teller)
            self._full = f"node {report.node} is not taken: {MAX_NODES} nodes of live runs report here already"
            raise IntakeError(self._full, status=429, code=RESOURCE_EXHAUSTED, retry_after=BUSY_WAIT)
        while self._total + len(report.windows) > MAX_WINDOWS and self._make_room(keep=teller):
            pass
        room = min(MAX_WINDOWS - self._total, MAX_OF_NODE - self._windows.get(teller, 0))
        now = self._unix_ns()
        node = NodeRow(
            node=report.node,
            run=report.run,
            attempt=report.attempt,
            http=report.http if usable(report.http, peer=peer) else "",
            heard_unix_ns=now,
            offset_ns=report.clock.offset_ns if report.clock else None,
            error_ns=report.clock.error_ns if report.clock else None,
            ended_unix_ns=now if report.ending else 0,
        )
        try:
            written = self._store.submit(lambda connection: self._write(connection, node, report, room=room))
            new, refused = await asyncio.wrap_future(written)
        except StoreError as error:
            raise IntakeError(str(error), status=503, code=UNAVAILABLE, retry_after=BUSY_WAIT) from error
        if teller not in self._heard:
            LOG.info("node %s of %s-%s reports", report.node, report.run, report.attempt)
        self._heard[teller], self._ended[teller] = self._monotonic(), node.ended_unix_ns
        self._windows[teller], self._last[teller] = self._windows.get(teller, 0) + new, now
        self._total += new
        return Taken(keeper=self._keeper, known=known, refused=self._note_refused(teller, refused))

    def tick(self) -> None:
        """
        Note who was not heard of for too long. Called a few times a second.
        """
        now = self._monotonic()
        for teller in [key for key, heard in self._heard.items() if now - heard >= VANISHED]:
            del self._heard[teller]
            if not self._ended.get(teller):
                LOG.warning("node %s of %s-%s has vanished", teller.node, teller.run, teller.attempt)
            self._store.submit(self._vanish(teller)).add_done_callback(_noted)

    def _make_room(self, *, keep: Teller | None = None) -> bool:
        """
        Drop the run that has been over for longest, with its nodes and windows; whether there was one.
        """
        own = (self._own.run, self._own.attempt)
        kept = {own, *((teller.run, teller.attempt) for teller in [*self.present, *([keep] if keep else [])])}
        last: dict[tuple[str, str], int] = {}
        for teller, heard in self._last.items():
            if (run := (teller.run, teller.attempt)) not in kept:
                last[run] = max(heard, last.get(run, 0))
        if not last:
            return False
        self._full = ""
        gone = min(last, key=lambda run: last[run])
        LOG.warning("run %s-%s has been over for longest: what its nodes reported is dropped, to make room", *gone)
        for teller in [found for found in self._last if (found.run, found.attempt) == gone]:
            self._total -= self._windows.pop(teller, 0)
            for held in (self._ended, self._heard, self._last, self._refused, self._doubles):
                held.pop(teller, None)
            self._sequences.forget(teller)
            self._forgotten(teller)

        def drop(connection: sqlite3.Connection) -> None:
            for table in ("node_windows", "node_missing", "nodes"):
                connection.execute(f"DELETE FROM {table} WHERE run = ? AND attempt = ?", gone)  # noqa: S608 - our own names

        self._store.submit(drop).add_done_callback(_noted)
        return True

    def _note_refused(self, teller: Teller, refused: int) -> str:
        if not refused:
            return ""
        kept = f"{self._windows[teller]} of this node, {self._total} of all other nodes are kept"
        self._refused[teller] = (
            f"node {teller.node} of {teller.run}-{teller.attempt}: windows are not listed here: {kept}"
        )
        return self._refused[teller]

    def _write(self, connection: sqlite3.Connection, node: NodeRow, report: Report, *, room: int) -> tuple[int, int]:
        """
        Write; how many windows are new, and how many there was no ``room`` for.
        """
        connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (KEEPER, self._keeper))
        connection.execute(rows.upsert(node, "nodes"), rows.values(node))
        new = refused = 0
        for row in report.windows:
            key = (row.node, row.run, row.attempt, row.window)
            if kept := connection.execute(KNOWN, key).fetchone():
                if State(kept[0]).final and not State(row.state).final:
                    # What is over does not begin again: this was held up on its way.
                    continue
            else:
                if new >= room:
                    refused += 1
                    continue
                new += 1
            connection.execute(rows.upsert(row, "node_windows"), rows.values(row))
        absences.keep(connection, report.missing, node=report.node, run=report.run, attempt=report.attempt)
        return new, refused

    def _vanish(self, teller: Teller) -> Callable[[sqlite3.Connection], object]:
        now = self._unix_ns()
        return lambda connection: connection.execute(
            "UPDATE nodes SET vanished_unix_ns = ? WHERE node = ? AND run = ? AND attempt = ?",
            (now, teller.node, teller.run, teller.attempt),
        )


def usable(http: str, *, peer: str) -> bool:
    """
    Whether ``http`` is a plain address at ``peer``: nobody can have this sidecar ask a third machine.
    """
    try:
        parts = urlsplit(http)
        host, port = ipaddress.ip_address(parts.hostname or ""), parts.port
        told_from = ipaddress.ip_address(peer)
    except ValueError:
        return False
    bare = f"{parts.scheme}://{parts.netloc}" == http and parts.scheme == "http" and "@" not in parts.netloc
    return bare and bool(port) and _same(host) == _same(told_from)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _same(address: Address) -> Address:
    # One that listens on IPv6 sees IPv4 addresses in that form.
    return getattr(address, "ipv4_mapped", None) or address


def _teller(row: NodeRow) -> Teller:
    return Teller(node=row.node, run=row.run, attempt=row.attempt)


def _noted(future: "Future[T]") -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        LOG.error("that a node has gone is not in the store: %s", error)
