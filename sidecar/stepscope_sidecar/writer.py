"""
The thread that writes to the store: takes jobs from a bounded queue and commits them in groups.

Owns the queue, the transactions and what becomes of a job when the disk is full. Between commits it lets the
indexer read the inbox, in slices short enough not to keep an acknowledgement waiting. Leaves what is written to
``store.py``.
"""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from stepscope_sidecar.errors import StoreBusyError, StoreClosedError, StoreError, StoreFullError

LOG = logging.getLogger(__name__)

QUEUED_BYTES = 64 * 1024**2
"""Bodies waiting to be written: seconds of them at the aim of 50,000 spans/s; beyond it senders are told to wait."""

GROUP = 256
"""Jobs in one transaction: more gains nothing, and the first of them has to wait for the last."""

BUSY_SLICE_SECONDS = 0.05
"""While jobs never stop coming, a slice of the inbox is read this often all the same."""

IDLE_SLICES_SECONDS = 0.02
"""While no job waits, so long a transaction of slices is made; a commit for each would cost more than it."""

RETRY_SECONDS = 1.0
"""Between attempts to read the inbox while the disk is full."""

FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM})
"""What SQLite says when there is no space: a full disk shows as an I/O error where the log's index has to grow."""

Work = Callable[[sqlite3.Connection], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """
    Something to write, and who waits for it.
    """

    work: Work
    future: "Future[object]"
    bytes: int = 0


class Writer:
    """
    Runs jobs on its own thread, on the one connection that writes.
    """

    def __init__(
        self, connection: sqlite3.Connection, *, slice_inbox: Work, forget: Callable[[], None], name: str = "store"
    ) -> None:
        """
        ``slice_inbox`` reads a slice of the inbox and says whether there was any; ``forget`` follows a rollback.
        """
        self._connection = connection
        self._slice_inbox = slice_inbox
        self._forget = forget
        self._queue: deque[Job] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing: float | None = None
        self._behind = True
        self._sliced = self._retry_at = 0.0
        self.failure: BaseException | None = None
        self.watchers: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._guarded, name=f"stepscope-{name}", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """
        Jobs that wait.
        """
        return len(self._queue)

    def put(self, job: Job) -> None:
        """
        Queue ``job``; its future fails at once if the queue is full or closed.
        """
        with self._changed:
            if self._closing is not None or self.failure is not None:
                error: StoreError = StoreClosedError("the store is closed")
            elif job.bytes and self._bytes + job.bytes > QUEUED_BYTES:
                error = StoreBusyError(f"{self._bytes} bytes wait to be written; try again in a moment")
            else:
                self._bytes += job.bytes
                self._queue.append(job)
                self._changed.notify()
                return
        job.future.set_exception(error)

    def close(self, *, timeout: float) -> bool:
        """
        Write what waits, read the inbox to its end, and close the file; False if the time did not suffice.
        """
        with self._changed:
            if self._closing is None:
                self._closing = time.monotonic() + timeout
            self._changed.notify()
        self._thread.join(timeout + 5.0)
        return not self._thread.is_alive() and not self._behind

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error
            LOG.exception("the store's writer has ended")
        finally:
            with self._changed:
                left, self._queue = list(self._queue), deque()
            for job in left:
                if job.future.set_running_or_notify_cancel():
                    job.future.set_exception(StoreClosedError("the store was closed before this was written"))
            self._connection.close()

    def _run(self) -> None:
        while True:
            jobs = self._take()
            if jobs:
                self._commit(jobs)
            elif self._over():
                return
            now = time.monotonic()
            if self._behind and now >= self._retry_at and (not self._queue or now - self._sliced > BUSY_SLICE_SECONDS):
                self._read_inbox()

    def _over(self) -> bool:
        if self._closing is None:
            return False
        return not self._behind or self._retry_at > 0 or time.monotonic() > self._closing

    def _take(self) -> list[Job]:
        with self._changed:
            while not self._queue and self._closing is None:
                wait = max(0.0, self._retry_at - time.monotonic()) if self._behind else None
                if wait == 0.0:
                    break
                self._changed.wait(wait)
            jobs = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP))]
            self._bytes -= sum(job.bytes for job in jobs)
        return [job for job in jobs if job.future.set_running_or_notify_cancel()]

    def _commit(self, jobs: list[Job]) -> None:
        connection = self._connection
        answers: list[Callable[[], None]] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                answers.append(self._attempt(job))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            told = told_as(error)
            for job in jobs:
                job.future.set_exception(told)
            return
        self._behind = True
        # Whoever has the answer finds that the watchers know.
        self._tell_watchers()
        for answer in answers:
            answer()

    def _attempt(self, job: Job) -> Callable[[], None]:
        connection = self._connection
        connection.execute("SAVEPOINT job")
        try:
            result = job.work(connection)
        except Exception as error:
            if isinstance(error, sqlite3.Error):
                if _primary(error) in FULL or not connection.in_transaction:
                    raise
                told: Exception = told_as(error)
            else:
                told = error
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            self._forget()
            return lambda: job.future.set_exception(told)
        connection.execute("RELEASE job")
        return lambda: job.future.set_result(result)

    def _read_inbox(self) -> None:
        self._sliced = time.monotonic()
        read = False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            while more := bool(self._slice_inbox(self._connection)):
                read = True
                if self._queue or time.monotonic() - self._sliced > IDLE_SLICES_SECONDS:
                    break
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            self._retry_at = time.monotonic() + RETRY_SECONDS
            LOG.warning("cannot read received spans into rows now, will try again: %s", error)
            return
        self._behind, self._retry_at = more, 0.0
        if read:
            # Who looked since the commit has counted what is read now.
            self._tell_watchers()

    def _tell_watchers(self) -> None:
        for watcher in self.watchers:
            watcher()

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._forget()


def told_as(error: sqlite3.Error) -> StoreError:
    """
    The error that callers can handle.
    """
    if _primary(error) in FULL:
        return StoreFullError(f"no space left for the store ({error}); what was received before is kept")
    return StoreError(f"the store cannot be written: {error}")


def _primary(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
