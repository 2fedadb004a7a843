"""
Turns what lies in the inbox into rows and totals, a bounded slice at a time.

Owns the exactly-once rule: the rows, what they add to the totals and the cursor that says how far the inbox has
been read change in one transaction. Used on the store's writer thread only.
"""

import itertools
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from stepscope import names
from stepscope_sidecar import inbox, rewards, spans, totals
from stepscope_sidecar.inbox import Parcel
from stepscope_sidecar.rows import SpanRow
from stepscope_sidecar.spans import to_text
from stepscope_sidecar.steps import Steps
from stepscope_sidecar.totals import Exemplar

LOG = logging.getLogger(__name__)

SLICE = 64
"""Spans read in one go, about 3 ms at 50 us each: what an acknowledgement may have to wait for."""

RESOURCES = 1000
"""Resources whose row ids are remembered; a run has one for each process."""

MAX_ROLES = 64
"""Roles that are counted, the first ones. Each is a label of dozens of series, and a run has a handful."""

BUCKETS = frozenset(names.Bucket)
"""Kinds of time that are counted; what a foreign program calls a bucket must not become a label."""

UNSET = {"code": "unset", "message": ""}
UNSET_TEXT = to_text(UNSET)

INSERT = f"INSERT OR IGNORE INTO spans VALUES (NULL{', ?' * 16})"  # noqa: S608 - a constant
"""A span that an exporter sent twice is kept once."""


@dataclass(kw_only=True, slots=True)
class _Parsed:
    """
    A request that is being read. A list of its spans would take more than they do.
    """

    row_id: int
    done: int
    rest: Iterator[tuple[Resource, Span]]


class Indexer:
    """
    Reads the inbox behind the ``index`` cursor.
    """

    def __init__(self, *, steps: Steps, outbox: bool, clock: Callable[[], int]) -> None:
        """
        ``steps`` learns of the steps seen, and places spans of others; ``outbox``: bodies wait to be forwarded.
        """
        self._steps = steps
        self._outbox = outbox
        self._clock = clock
        self._parsed: _Parsed | None = None
        self._resources: dict[str, int] = {}
        self._roles: set[str] | None = None

    def forget(self) -> None:
        """
        A transaction was rolled back: what it had written is not there.
        """
        self._resources.clear()
        self._roles = None

    def slice(self, connection: sqlite3.Connection) -> bool:
        """
        Read up to :data:`SLICE` spans; False when there was nothing to read. The caller holds a transaction.
        """
        cursor = connection.execute("SELECT inbox_id, spans FROM cursor WHERE name = 'index'").fetchone()
        at, done = cursor["inbox_id"], cursor["spans"]
        row = connection.execute("SELECT id, spans FROM inbox WHERE id >= ? ORDER BY id LIMIT 1", (at,)).fetchone()
        if row is None:
            return False
        if row["id"] != at:
            done = 0
        taken = self._read(connection, row["id"], done)
        done += taken
        finished = done >= row["spans"] or not taken
        connection.execute(
            "UPDATE cursor SET inbox_id = ?, spans = ? WHERE name = 'index'",
            (row["id"] + 1, 0) if finished else (row["id"], done),
        )
        if finished:
            self._parsed = None
            inbox.prune(connection, outbox=self._outbox)
        return True

    def _read(self, connection: sqlite3.Connection, row_id: int, done: int) -> int:
        connection.execute("SAVEPOINT request")
        try:
            part = self._next(connection, row_id, done)
            taken = [(row, _texts(row)) for row in spans.as_rows(part, steps=self._steps)]
            self._keep(connection, taken)
        except sqlite3.OperationalError:
            # The disk's fault, not the request's: the writer tries again.
            raise
        except Exception as error:
            # Whatever it holds, it must not be what the next sidecar dies of, too.
            LOG.exception("a received request cannot be read into rows; set aside")
            connection.execute("ROLLBACK TO request")
            connection.execute("RELEASE request")
            self.forget()
            row = connection.execute("SELECT spans, body FROM inbox WHERE id = ?", (row_id,)).fetchone()
            parcel = Parcel(id=row_id, spans=row["spans"] - done, body=row["body"])
            inbox.refuse(connection, parcel, status=0, message=str(error), unix_ns=self._clock(), reason="unreadable")
            return 0
        connection.execute("RELEASE request")
        return len(taken)

    def _next(self, connection: sqlite3.Connection, row_id: int, done: int) -> list[tuple[Resource, Span]]:
        parsed = self._parsed
        # After a transaction that was rolled back, spans are read again that had been taken before.
        if parsed is None or (parsed.row_id, parsed.done) != (row_id, done):
            body = connection.execute("SELECT body FROM inbox WHERE id = ?", (row_id,)).fetchone()["body"]
            every = spans.each(ExportTraceServiceRequest.FromString(body))
            parsed = self._parsed = _Parsed(row_id=row_id, done=done, rest=itertools.islice(every, done, None))
        part = list(itertools.islice(parsed.rest, SLICE))
        parsed.done += len(part)
        return part

    def _keep(self, connection: sqlite3.Connection, taken: list[tuple[SpanRow, tuple[str, ...]]]) -> None:
        known = {
            (row["trace_id"], row["span_id"])
            for row in connection.execute(
                "SELECT trace_id, span_id FROM spans WHERE span_id IN (SELECT value FROM json_each(?))",
                (to_text([row.span_id for row, _ in taken]),),
            )
        }
        new = []
        for row, texts in taken:
            if (row.trace_id, row.span_id) not in known:
                known.add((row.trace_id, row.span_id))
                new.append((row, texts))
        counted = [row for row, _ in new if self._counted(connection, row.role)]
        connection.executemany(INSERT, [self._columns(connection, row, texts) for row, texts in new])
        _account(connection, counted)
        rewards.take(connection, counted)

    def _counted(self, connection: sqlite3.Connection, role: str | None) -> bool:
        """
        Whether spans of ``role`` count among the totals.
        """
        if role is None:
            return False
        if self._roles is None:
            query = "SELECT DISTINCT role FROM spans WHERE role IS NOT NULL ORDER BY id LIMIT ?"
            self._roles = {row["role"] for row in connection.execute(query, (MAX_ROLES,))}
        if role not in self._roles:
            if len(self._roles) >= MAX_ROLES:
                return False
            self._roles.add(role)
            if len(self._roles) == MAX_ROLES:
                LOG.warning("spans tell of %d roles; what others do is kept, and counted in no metric", MAX_ROLES)
        return True

    def _columns(self, connection: sqlite3.Connection, row: SpanRow, texts: tuple[str, ...]) -> tuple[object, ...]:
        *texts_of_span, resource = texts
        return (
            *(row.trace_id, row.span_id, row.parent_span_id, row.name, row.kind, row.start_unix_ns, row.end_unix_ns),
            *texts_of_span,
            *(self._resource(connection, resource), row.role, row.rank, row.step, row.param_version),
        )

    def _resource(self, connection: sqlite3.Connection, text: str) -> int:
        if text not in self._resources:
            if len(self._resources) >= RESOURCES:
                self._resources.clear()
            connection.execute("INSERT OR IGNORE INTO resources (text) VALUES (?)", (text,))
            found = connection.execute("SELECT id FROM resources WHERE text = ?", (text,)).fetchone()
            self._resources[text] = found["id"]
        return self._resources[text]


def _texts(row: SpanRow) -> tuple[str, ...]:
    return (
        to_text(row.attributes),
        to_text(row.links) if row.links else "[]",
        to_text(row.events) if row.events else "[]",
        to_text(row.status) if row.status != UNSET else UNSET_TEXT,
        to_text(row.resource),
    )


def _account(connection: sqlite3.Connection, rows: list[SpanRow]) -> None:
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    example: dict[tuple[str, str], Exemplar] = {}
    versions: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.role is None or row.step is None:
            continue
        took = max(0, row.end_unix_ns - row.start_unix_ns) / 1e9
        exemplar = Exemplar(
            trace_id=row.trace_id, span_id=row.span_id, step=row.step, value=took, unix_ns=row.end_unix_ns
        )
        bucket = row.attributes.get(names.BUCKET)
        if isinstance(bucket, str) and bucket in BUCKETS:
            seconds[row.role, bucket] += took
            example[row.role, bucket] = exemplar
        if row.name == names.RL_STEP_PROCESS:
            versions[row.role] = max(versions.get(row.role, (0, 0)), (_version(row), row.end_unix_ns))
            if not row.attributes.get(names.PARTIAL):
                # What follows the last update is no step.
                totals.observe(connection, "stepscope_step_seconds", {"role": row.role}, [took], exemplar)
    for (role, bucket), amount in seconds.items():
        labels = {"role": role, "bucket": bucket}
        totals.add(connection, "stepscope_bucket_seconds_total", labels, amount, example[role, bucket])
    for role, (version, unix_ns) in versions.items():
        totals.reach(connection, role, version, unix_ns=unix_ns)


def _version(row: SpanRow) -> int:
    ended = row.attributes.get(names.PARAM_VERSION_END)
    return ended if type(ended) is int else row.param_version or 0
