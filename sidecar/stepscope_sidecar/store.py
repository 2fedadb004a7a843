"""
The store of one attempt: one SQLite file that outlives the processes it tells of.

Owns what can be written. Every method may be called on any thread and returns at once with a future that is done
when the write is committed: from then on it survives a killed process (not a power cut). To change several things
in one transaction, pass a function to :meth:`Store.submit` and use the functions of ``inbox.py``, ``totals.py`` and
this module on its connection. Reading is for ``reader.py``, on a connection of its own.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar, cast

from stepscope import ids, names
from stepscope_sidecar import inbox, rows, schema, totals
from stepscope_sidecar.chain import Chain
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.index import Indexer
from stepscope_sidecar.rows import MissingRow, OwnSpan, ProcessRow, SampleRow, SelectionRow, WindowRow
from stepscope_sidecar.spans import build
from stepscope_sidecar.steps import Steps
from stepscope_sidecar.totals import Exemplar
from stepscope_sidecar.writer import Job, Writer

T = TypeVar("T")


class Store:
    """
    Writes to the store of one attempt.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        path: Path,
        run: str,
        attempt: str,
        outbox: bool,
        clock: Callable[[], int],
    ) -> None:
        """
        Use :meth:`open`.
        """
        self.path = path
        self.outbox = outbox
        """Whether received requests are kept until they are forwarded."""
        self.steps = Steps(attempt)
        """The steps seen so far; ``steps.seen(step)`` when a process enters one."""
        self._clock = clock
        self._resource: dict[str, str | int] = {
            "service.name": "stepscope-sidecar",
            "host.name": ids.node(),
            names.RUN: run,
            names.ATTEMPT: attempt,
        }
        self._indexer = Indexer(steps=self.steps, outbox=outbox, clock=clock)
        self._writer = Writer(connection, slice_inbox=self._indexer.slice, forget=self._indexer.forget)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        run: str = "",
        attempt: str = "",
        outbox: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> "Store":
        """
        Open the store at ``path`` for writing, or begin it. ``outbox``: there is an upstream to forward to.

        Raises:
            StoreError: the file cannot be opened or made. A damaged one is moved aside and is no error.
        """
        connection = schema.open_for_writing(path)
        try:
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [("run", run), ("attempt", attempt)])
        except sqlite3.Error as error:
            connection.close()
            raise StoreError(f"cannot write to the store {path}: {error}") from error
        return cls(connection, path=path, run=run, attempt=attempt, outbox=outbox, clock=clock)

    @property
    def failure(self) -> BaseException | None:
        """
        What ended the writer, if anything did; the main loop raises it.
        """
        return self._writer.failure

    @property
    def queued(self) -> int:
        """
        Writes that wait.
        """
        return self._writer.queued

    def watch(self, callback: Callable[[], None]) -> None:
        """
        Call ``callback`` on the writer's thread after every commit; it must not block.
        """
        self._writer.watchers.append(callback)

    def submit(self, work: Callable[[sqlite3.Connection], T], *, size: int = 0) -> "Future[T]":
        """
        Run ``work`` on the writer's thread, in a transaction; what it raises rolls back its own changes alone.

        The future fails with StoreFullError (no space), StoreBusyError (queue full), or another StoreError.
        """
        future: Future[T] = Future()
        self._writer.put(Job(work=work, future=cast("Future[object]", future), bytes=size))
        return future

    def append(self, body: bytes, spans: int, via: Chain = ()) -> "Future[int]":
        """
        Keep an OTLP trace request of ``spans`` spans that came by ``via``; the future's value is its place there.
        """
        now = self._clock()
        return self.submit(
            lambda connection: inbox.append(connection, body, spans=spans, unix_ns=now, via=via), size=len(body) + 1
        )

    def encode(self, spans: Iterable[OwnSpan]) -> bytes:
        """
        The sidecar's own spans as an OTLP request, for ``inbox.append`` in a transaction with something else.
        """
        return build(spans, resource=self._resource)

    def close(self, *, timeout: float = 5.0) -> bool:
        """
        Write what waits and close the file; False if received spans remain to be read, which the next start does.
        """
        return self._writer.close(timeout=timeout)


def write(connection: sqlite3.Connection, row: WindowRow | ProcessRow | SelectionRow | MissingRow) -> None:
    """
    Write ``row`` over an older one of the same key; for use in :meth:`Store.submit`.
    """
    connection.execute(rows.upsert(row, TABLES[type(row)]), rows.values(row))


TABLES: dict[type, str] = {
    WindowRow: "windows",
    ProcessRow: "processes",
    SelectionRow: "selection",
    MissingRow: "missing",
}


def add_samples(connection: sqlite3.Connection, samples: Sequence[SampleRow]) -> None:
    """
    Keep what one mini-batch consumed, and count staleness; a version that is not known counts as unknown.
    """
    for row in samples:
        connection.execute(rows.upsert(row, "samples"), rows.values(row))
    stale = [(float(row.param_version - row.oldest_version), row) for row in samples if row.oldest_version is not None]
    if stale:
        most, row = max(stale, key=lambda pair: pair[0])
        exemplar = (
            Exemplar(trace_id=row.trace_id, span_id=row.span_id, step=row.step, value=most) if row.trace_id else None
        )
        values = [value for value, _ in stale]
        totals.observe(connection, "stepscope_sample_staleness_versions", {}, values, exemplar)
    if unknown := len(samples) - len(stale):
        totals.add(connection, "stepscope_samples_unknown_version_total", {}, unknown)
