"""
Reads the store of an attempt, with or without a sidecar that writes to it.

Every answer is of one moment, and whole: what lies in the inbox, received but not yet read into rows, is read on
the spot. A reader belongs to one thread at a time.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope_sidecar import inbox, rows, schema, totals
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.inbox import Parcel
from stepscope_sidecar.rows import ProcessRow, SampleRow, SelectionRow, SpanRow, WindowRow
from stepscope_sidecar.spans import decode
from stepscope_sidecar.steps import Steps
from stepscope_sidecar.totals import Totals


def open_reader(path: Path) -> "Reader":
    """
    A reader of the store at ``path``; use it in a ``with`` statement, or close it.

    Raises:
        StoreError: there is no store there, or it cannot be read.
    """
    return Reader(schema.open_for_reading(path), path=path)


class Reader:
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
            self.meta = {row["key"]: row["value"] for row in connection.execute("SELECT * FROM meta")}
        self._steps = Steps(self.meta.get("attempt", ""))

    def __enter__(self) -> "Reader":
        """
        Close at the end of the block.
        """
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """
        Close.
        """
        self.close()

    def close(self) -> None:
        """
        Close the file.
        """
        self._connection.close()

    def spans(
        self, *, step: int | None = None, name: str | None = None, trace_id: str | None = None, limit: int | None = None
    ) -> list[SpanRow]:
        """
        Spans that fit all of what is given, by start; at most ``limit``.
        """
        with self._moment():
            found = {(row.trace_id, row.span_id): row for row in self._indexed(step, name, trace_id, limit)}
            for row in self._unread():
                if (
                    (step is None or row.step == step)
                    and (name is None or row.name == name)
                    and (trace_id is None or row.trace_id == trace_id)
                ):
                    found.setdefault((row.trace_id, row.span_id), row)
        return sorted(found.values(), key=lambda row: (row.start_unix_ns, row.span_id))[:limit]

    def steps(self) -> list[int]:
        """
        The steps that any span tells of, in order.
        """
        with self._moment():
            query = "SELECT DISTINCT step FROM spans WHERE step IS NOT NULL"
            found = {int(row["step"]) for row in self._connection.execute(query)}
            found.update(row.step for row in self._unread() if row.step is not None)
        return sorted(found)

    def windows(self, *, step: int | None = None) -> list[WindowRow]:
        """
        Windows in the order of their steps, roles and ranks.
        """
        return self._rows(WindowRow, "windows", 'step, role, rank, tool, asked_unix_ns, "window"', step)

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
        wanted = {"step": step, "name": name, "trace_id": trace_id}
        given = {key: value for key, value in wanted.items() if value is not None}
        where = " AND ".join(f"spans.{key} = :{key}" for key in given) or "1"
        query = (
            f"SELECT spans.*, resources.text AS resource FROM spans JOIN resources ON resources.id = resource_id"  # noqa: S608 - our own names
            f" WHERE {where} ORDER BY start_unix_ns, span_id LIMIT :limit"
        )
        for row in self._connection.execute(query, {**given, "limit": -1 if limit is None else limit}):
            yield rows.load(SpanRow, row)

    def _unread(self) -> Iterator[SpanRow]:
        at, done = self._connection.execute("SELECT inbox_id, spans FROM cursor WHERE name = 'index'").fetchone()
        for row in self._connection.execute("SELECT id, body FROM inbox WHERE id >= ? ORDER BY id", (at,)):
            request = ExportTraceServiceRequest.FromString(row["body"])
            yield from decode(request, steps=self._steps, start=done if row["id"] == at else 0)

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
