"""
Reads the store of an attempt, with or without a sidecar that writes to it.

Every answer is of one moment, and whole: what lies in the inbox, received but not yet read into rows, is read on
the spot. A reader belongs to one thread at a time.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.names import Reason, State
from stepscope_sidecar import inbox, rows, schema, totals
from stepscope_sidecar.closing import Closing
from stepscope_sidecar.errors import StoreError, StoreSlowError
from stepscope_sidecar.inbox import Parcel
from stepscope_sidecar.rows import (
    MissingElsewhere,
    MissingRow,
    NodeRow,
    ProcessRow,
    SampleRow,
    SelectionRow,
    SpanRow,
    WindowRow,
)
from stepscope_sidecar.totals import Totals
from stepscope_sidecar.unindexed import Unindexed

WINDOW_ORDER = 'step, role, rank, tool, asked_unix_ns, "window"'

REPORTED = "SELECT 1 FROM sqlite_master WHERE name = 'node_windows_by_id'"
"""Whether the store is of a release that knows of other nodes."""

DECIDED_ELSEWHERE = "SELECT 1 FROM sqlite_master WHERE name = 'node_missing'"
"""Whether it is of one that keeps what other nodes say of that."""

DECIDED = "SELECT 1 FROM sqlite_master WHERE name = 'missing'"
"""Whether it is of one that keeps which recordings are missing."""

SPAN_COLUMNS = "spans.*, resources.text AS resource"

SPAN_TABLES = "spans CROSS JOIN resources ON resources.id = resource_id"
"""In this order: SQLite keeps to it for a cross join."""

EACH_STEP = """
WITH RECURSIVE each(step) AS (
    SELECT min(step) FROM spans UNION ALL
    SELECT (SELECT min(step) FROM spans WHERE spans.step > each.step) FROM each WHERE each.step IS NOT NULL
) SELECT step FROM each WHERE step IS NOT NULL
"""
"""From step to step in the index; DISTINCT would look at every span."""

BETWEEN_LOOKS = 10_000
"""Instructions of SQLite between two looks at the clock: well under a millisecond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """
    The store at one moment, for questions of more than one statement; valid inside its ``with`` block.
    """

    connection: sqlite3.Connection
    """Read only."""
    unread: Callable[[], Iterator[SpanRow]]
    """The spans that were received and are not in the tables yet, in the order they came."""


def open_reader(path: Path) -> "Reader":
    """
    A reader of the store at ``path``; use it in a ``with`` statement, or close it.

    Raises:
        StoreError: there is no store there, or it cannot be read.
    """
    return Reader(schema.open_for_reading(path), path=path)


MAX_INTEGER = 2**63 - 1
"""What SQLite and OTLP have numbers up to; nothing has a greater one."""


class Reader(Closing):
    """
    Answers questions about one attempt.
    """

    def __init__(self, connection: sqlite3.Connection, *, path: Path) -> None:
        """
        Use :func:`open_reader`.
        """
        self._connection = connection
        self.path = path
        with self._moment():
            self._reported = bool(self._connection.execute(REPORTED).fetchall())
            self._decided = bool(self._connection.execute(DECIDED).fetchall())
            self._decided_elsewhere = bool(self._connection.execute(DECIDED_ELSEWHERE).fetchall())
            self.meta = {row["key"]: row["value"] for row in connection.execute("SELECT * FROM meta")}
        self._unread = Unindexed(connection, attempt=self.meta.get("attempt", ""))

    def close(self) -> None:
        """
        Close the file.
        """
        self._connection.close()

    @contextmanager
    def moment(self, *, seconds: float) -> Iterator[Moment]:
        """
        The store as it is now, to be asked for ``seconds`` at most.

        Raises:
            StoreSlowError: it took longer.
        """
        deadline = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: time.monotonic() > deadline, BETWEEN_LOOKS)
        try:
            with self._moment():
                yield Moment(connection=self._connection, unread=lambda: iter(self._unread))
        except StoreError as error:
            if getattr(error.__cause__, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise StoreSlowError(f"this would take more than {seconds:g} s; ask for less") from None
            raise
        finally:
            self._connection.set_progress_handler(None, 0)

    def spans(
        self, *, step: int | None = None, name: str | None = None, trace_id: str | None = None, limit: int | None = None
    ) -> list[SpanRow]:
        """
        Spans that fit all of what is given, by start; at most ``limit``.
        """
        with self._moment():
            found = {(row.trace_id, row.span_id): row for row in self._indexed(step, name, trace_id, limit)}
            for row in self._unread:
                if (
                    (step is None or row.step == step)
                    and (name is None or row.name == name)
                    and (trace_id is None or row.trace_id == trace_id)
                ):
                    found.setdefault((row.trace_id, row.span_id), row)
        return sorted(found.values(), key=lambda row: (row.start_unix_ns, row.span_id))[:limit]

    def span_pieces(self, size: int) -> Iterator[list[SpanRow]]:
        """
        All spans as of one moment, in the order they were received, ``size`` at a time.
        """
        with self._moment():
            query = f"SELECT {SPAN_COLUMNS} FROM {SPAN_TABLES} ORDER BY spans.id"  # noqa: S608 - our own names
            found = self._connection.execute(query)
            while piece := found.fetchmany(size):
                yield [rows.load(SpanRow, row) for row in piece]
            # A span that an exporter sent twice is kept once, and comes once.
            unread: dict[tuple[str, str], SpanRow] = {}
            for row in self._unread:
                unread.setdefault((row.span_id, row.trace_id), row)
            known = "SELECT 1 FROM spans WHERE span_id = ? AND trace_id = ?"
            yield [row for key, row in unread.items() if self._connection.execute(known, key).fetchone() is None]

    def steps(self) -> list[int]:
        """
        The steps that any span tells of, in order.
        """
        with self._moment():
            found = {int(row["step"]) for row in self._connection.execute(EACH_STEP)}
            found.update(row.step for row in self._unread if row.step is not None)
        return sorted(found)

    def windows(self, *, step: int | None = None) -> list[WindowRow]:
        """
        Windows in the order of their steps, roles and ranks; those that cover ``step``, where it is given.
        """
        found = self._rows(WindowRow, "windows", WINDOW_ORDER)
        return found if step is None else [row for row in found if row.covers(step)]

    def elsewhere(self, *, step: int | None = None) -> list[WindowRow]:
        """
        Windows of other nodes, in the same order; those that were open on a node that has vanished are lost.
        """
        if not self._reported:
            return []
        found = self._rows(WindowRow, "node_windows", WINDOW_ORDER)
        gone = {(node.node, node.run, node.attempt) for node in self.nodes() if node.vanished_unix_ns}
        return [
            _lost(row) if (row.node, row.run, row.attempt) in gone and not State(row.state).final else row
            for row in found
            if step is None or row.covers(step)
        ]

    def elsewhere_counts(self) -> dict[tuple[str, str, str], int]:
        """
        How many windows of each other node are kept, by node, run and attempt.
        """
        if not self._reported:
            return {}
        query = "SELECT node, run, attempt, count(*) FROM node_windows GROUP BY node, run, attempt"
        with self._moment():
            return {(row[0], row[1], row[2]): int(row[3]) for row in self._connection.execute(query)}

    def nodes(self) -> list[NodeRow]:
        """
        The other nodes that have reported.
        """
        return self._rows(NodeRow, "nodes", "node, run, attempt") if self._reported else []

    def processes(self) -> list[ProcessRow]:
        """
        Registrations in the order they came.
        """
        return self._rows(ProcessRow, "processes", "registered_unix_ns, role, rank")

    def samples(self, *, step: int | None = None) -> list[SampleRow]:
        """
        Which samples were consumed, in order.
        """
        return self._rows(SampleRow, "samples", "step, mini_batch, rowid", step)

    def selections(self) -> list[SelectionRow]:
        """
        The revisions of the selection, oldest first.
        """
        return self._rows(SelectionRow, "selection", "revision")

    def missing(self, *, step: int | None = None) -> list[MissingRow]:
        """
        Recordings that were expected and were not made, of one step or of all; none of a store of an older release.
        """
        return self._rows(MissingRow, "missing", "step, role, rank", step) if self._decided else []

    def missing_elsewhere(self, *, step: int | None = None) -> list[MissingElsewhere]:
        """
        The same of other nodes, as those have found it.
        """
        if not self._decided_elsewhere:
            return []
        return self._rows(MissingElsewhere, "node_missing", "step, role, rank, node, run, attempt", step)

    def totals(self) -> Totals:
        """
        All counters and histograms.
        """
        with self._moment():
            return totals.load(self._connection)

    def pending(self) -> int:
        """
        Spans received and not yet forwarded.
        """
        with self._moment():
            return inbox.pending(self._connection)

    def waiting(self, *, parcels: int, limit: int) -> list[Parcel]:
        """
        The next requests to forward (see ``inbox.waiting``).
        """
        with self._moment():
            return inbox.waiting(self._connection, parcels=parcels, limit=limit)

    def waiting_bytes(self) -> int:
        """
        Bytes of the requests that wait to be forwarded.
        """
        with self._moment():
            return inbox.waiting_bytes(self._connection)

    def _rows(self, kind: type[rows.R], table: str, order: str, step: int | None = None) -> list[rows.R]:
        where, arguments = ("WHERE step = ?", [step]) if step is not None else ("", [])
        query = f"SELECT * FROM {table} {where} ORDER BY {order}"  # noqa: S608 - our own names
        with self._moment():
            return [rows.load(kind, row) for row in self._connection.execute(query, arguments)]

    def _indexed(
        self, step: int | None, name: str | None, trace_id: str | None, limit: int | None
    ) -> Iterator[SpanRow]:
        if step is not None and not -MAX_INTEGER <= step <= MAX_INTEGER:
            return
        wanted = {"step": step, "name": name, "trace_id": trace_id}
        given = {key: value for key, value in wanted.items() if value is not None}
        where = " AND ".join(f"spans.{key} = :{key}" for key in given) or "1"
        query = (
            f"SELECT spans.*, resources.text AS resource FROM spans JOIN resources ON resources.id = resource_id"  # noqa: S608 - our own names
            f" WHERE {where} ORDER BY start_unix_ns, span_id LIMIT :limit"
        )
        for row in self._connection.execute(query, {**given, "limit": -1 if limit is None else limit}):
            yield rows.load(SpanRow, row)

    @contextmanager
    def _moment(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreError(f"cannot read the store {self.path}: {error}") from error


def _lost(row: WindowRow) -> WindowRow:
    return replace(row, state=State.LOST, reason=Reason.NODE_VANISHED)
