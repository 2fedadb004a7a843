"""
Changes on their way to the store, and such that it could not take: a full disk must not cost what the sidecar knows.

While the store takes nothing, one change at a time is tried again; once it does, more and more. What later changes
replace does not wait, and what is only added up waits as one sum, so that hours without space do not fill the memory.
"""

import logging
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from stepscope_sidecar import totals
from stepscope_sidecar.errors import StoreBusyError, StoreFullError
from stepscope_sidecar.store import Store

LOG = logging.getLogger(__name__)

Work = Callable[[sqlite3.Connection], None]

LIMIT = 50_000
"""Rows that wait, each of about a kilobyte; such that may be spared leave half of it to the others."""

BURSTS = (1, 16, 256, 4096)
"""Changes tried again at a time: the next number after all of one have been taken, the first after a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Write:
    """
    Work of ``size`` rows; ``number`` counts those that replace each other.
    """

    work: Work
    key: Hashable
    number: int = 0
    size: int = 1
    spared: bool = False

    def after(self, older: "_Change") -> "_Change":
        return self if not isinstance(older, _Write) or older.number < self.number else older


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sum:
    """
    Something to be added.
    """

    name: str
    labels: Mapping[str, str]
    amount: float
    size: int = 1
    spared: bool = False

    @property
    def key(self) -> Hashable:
        return self.name, tuple(sorted(self.labels.items()))

    def work(self, connection: sqlite3.Connection) -> None:
        totals.add(connection, self.name, self.labels, self.amount)

    def after(self, older: "_Change") -> "_Change":
        return replace(self, amount=self.amount + older.amount) if isinstance(older, _Sum) else self


_Change = _Write | _Sum


class Unsaved:
    """
    Changes for ``store``. The control loop makes them; answers come on the store's thread.
    """

    def __init__(self, store: Store) -> None:
        """
        Nothing waits yet.
        """
        self._store = store
        self._numbers: dict[Hashable, int] = {}
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Hashable, _Change] = OrderedDict()
        self._size = self._under_way = self._trying = self._burst = self._given_up = 0

    def __len__(self) -> int:
        """
        Changes that are not in the store.
        """
        return self._under_way + len(self._waiting)

    def put(self, work: Work, *, over: Hashable | None = None, size: int = 1, spared: bool = False) -> None:
        """
        Do ``work`` of ``size`` rows, which must not depend on what was put before.

        Of changes that are put ``over`` the same, only the latest is made once another has come. One that may be
        ``spared`` is given up sooner, if all too much waits.
        """
        number = 0
        if over is not None:
            number = self._numbers[over] = self._numbers.get(over, 0) + 1
        key = object() if over is None else over
        self._send(_Write(work=work, key=key, number=number, size=size, spared=spared))

    def add(self, name: str, labels: Mapping[str, str], amount: float) -> None:
        """
        Add ``amount`` to a total.
        """
        self._send(_Sum(name=name, labels=labels, amount=amount))

    def retry(self) -> None:
        """
        Try again what waits, or a part of it. Called once in a while.
        """
        with self._lock:
            if self._trying or not self._waiting:
                return
            count = min(len(self._waiting), BURSTS[self._burst])
            again = [self._waiting.popitem(last=False)[1] for _ in range(count)]
            self._size -= sum(change.size for change in again)
            self._trying = count
            # Until one fails.
            self._burst = min(self._burst + 1, len(BURSTS) - 1)
        for change in again:
            self._send(change, again=True)

    def _send(self, change: _Change, *, again: bool = False) -> None:
        with self._lock:
            self._under_way += 1

        def made(connection: sqlite3.Connection) -> None:
            if isinstance(change, _Write) and change.number < self._numbers.get(change.key, 0):
                return
            change.work(connection)

        def settled(future: "Future[None]") -> None:
            error = None if future.cancelled() else future.exception()
            put_off = isinstance(error, (StoreFullError, StoreBusyError))
            with self._lock:
                self._under_way -= 1
                self._trying -= again
                given_up = 0 if not put_off or self._wait(change) else self._given_up
            if error is not None and not put_off:
                LOG.error("not kept: %s", error)
            # Not each: so many lines would go to the same disk.
            if given_up and not given_up & (given_up - 1):
                LOG.error("not kept, because %d rows wait for the store already: %d changes", LIMIT, given_up)

        self._store.submit(made).add_done_callback(settled)

    def _wait(self, change: _Change) -> bool:
        self._burst = 0
        older = self._waiting.get(change.key)
        if older is not None:
            change = change.after(older)
        size = self._size + change.size - (older.size if older is not None else 0)
        if older is None and size > (LIMIT // 2 if change.spared else LIMIT):
            self._given_up += 1
            return False
        self._waiting[change.key] = change
        self._size = size
        return True
