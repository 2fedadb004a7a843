"""
What waits in the store: received spans that are not forwarded yet, and such that are not read into rows yet.

Counts on a thread of its own, when something was committed since. Leaves the inbox to ``inbox``.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from stepscope_sidecar import inbox
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.metrics import Gauge
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.store import Store

PATIENCE = 5.0
"""Seconds that one look may take; the next one will tell."""

PAUSE = 2.0
"""Seconds between looks where nothing is forwarded: then nobody waits for the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """
    Spans that wait, as of one moment. ``since_unix_ns`` is when the oldest that is not forwarded came; 0 without one.
    """

    forward: int = 0
    since_unix_ns: int = 0
    rows: int = 0


class Backlog:
    """
    The last answer. Made and used in the event loop.
    """

    def __init__(
        self,
        store: Store,
        *,
        unix_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Nothing is known before the first look.
        """
        self._store = store
        self._unix_ns = unix_ns
        self._monotonic = monotonic
        self._last = Waiting()
        self._dirty, self._next = True, 0.0
        store.watch(self._committed)

    def pending(self) -> int:
        """
        Spans not forwarded; at least 1 while that is not known for what was just received.
        """
        return self._last.forward or int(self._dirty and self._store.outbox)

    async def look(self) -> None:
        """
        Look again where something has changed.
        """
        if not self._dirty or (not self._store.outbox and self._monotonic() < self._next):
            return
        self._dirty, self._next = False, self._monotonic() + PAUSE
        found = await asyncio.to_thread(self._count)
        if found is None:
            # What has changed is still unknown.
            self._dirty = True
        else:
            self._last = found

    def gauges(self) -> list[Gauge]:
        """
        What waits, and how long it has.
        """
        last = self._last
        lag = max(0, self._unix_ns() - last.since_unix_ns) / 1e9 if last.since_unix_ns else 0.0
        return [
            Gauge(name="stepscope_spans_pending", value=self.pending()),
            Gauge(name="stepscope_forward_lag_seconds", value=lag),
            Gauge(name="stepscope_queue_length", value=last.rows, labels={"queue": "index"}),
        ]

    def _committed(self) -> None:
        # On the writer's thread; only ever set here.
        self._dirty = True

    def _count(self) -> Waiting | None:
        try:
            with open_reader(self._store.path) as reader, reader.moment(seconds=PATIENCE) as moment:
                rows = inbox.unread(moment.connection)
                if not self._store.outbox:
                    return Waiting(rows=rows)
                return Waiting(
                    forward=inbox.pending(moment.connection),
                    since_unix_ns=inbox.waiting_since(moment.connection),
                    rows=rows,
                )
        except StoreError:
            return None
