"""
A person's order on its way to the other nodes: the upstream answers their reports with it, and they say when they obey.

Owns the last order, whose it is, and whom it has reached. Nobody is called: a node fetches the order with its next
report, at most 5 s later, and does what its own pages would have been told (``controller``). Nothing of it is in the
way of a process of the run.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace

import orjson

from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.report import Order
from stepscope_sidecar.reporter import Teller
from stepscope_sidecar.store import Store

LOG = logging.getLogger(__name__)

DISPATCH = "dispatch"
"""In the store's ``meta``: the last order, so that a node that was away hears of it from a restarted upstream too."""

MAX_HEARD = 2**62
"""Numbers are nanoseconds of a clock: this is the year 2116. What a node says beyond it numbers no order."""

Run = tuple[str, str]
"""A run and its attempt."""


class Dispatch:
    """
    The order that is in force for nodes that report here. Use it in the event loop alone.
    """

    def __init__(self, store: Store, own: Run, *, unix_ns: Callable[[], int]) -> None:
        """
        Go on with what is in ``store``; ``own`` is this node's run, whose nodes every order is for.
        """
        self._store, self._own, self._unix_ns = store, own, unix_ns
        self._order: Order | None = None
        self._runs: frozenset[Run] = frozenset()
        self._obeys: dict[Teller, int] = {}
        self._heard = 0
        self._numbers: dict[Teller, int] = {}
        with open_reader(store.path) as reader:
            kept = reader.meta.get(DISPATCH)
        if kept:
            found = orjson.loads(kept)
            self._order = Order(**found["order"])
            self._runs = frozenset((str(run), str(attempt)) for run, attempt in found["runs"])
            for node, run, attempt, number in found.get("numbers", []):
                self._numbers[Teller(node=node, run=run, attempt=attempt)] = number

    def give(self, steps: str, *, stopped: bool, runs: Iterable[Run]) -> None:
        """
        Order all nodes of ``runs``, also those that come later. A run that begins later is not meant by it.
        """
        last = self._order.number if self._order is not None else 0
        # By the clock, so that a store that was lost with its orders does not number new ones below them; and above
        # what nodes have obeyed, where the clock that they were numbered by was ahead of this one.
        number = max(last, self._heard, *self._numbers.values()) + 1
        self._order = Order(number=max(number, self._unix_ns()), steps=steps, stopped=stopped)
        self._runs = frozenset([*runs, self._own])
        self._numbers.clear()
        self._keep()

    def answer(self, teller: Teller, *, obeys: int) -> Order | None:
        """
        The order that ``teller``, whose last one was number ``obeys``, is to obey now.

        A node that was not heard of when the order was given may have obeyed a greater number, of a store that is lost:
        it is told the same order by a number of its own.
        """
        self._obeys[teller] = obeys
        if obeys <= MAX_HEARD:
            self._heard = max(self._heard, obeys)
        if self._order is None or (teller.run, teller.attempt) not in self._runs or obeys == self._number(teller):
            return None
        if self._number(teller) < obeys <= MAX_HEARD:
            self._numbers[teller] = obeys + 1
            self._keep()
        return replace(self._order, number=self._number(teller))

    def forget(self, teller: Teller) -> None:
        """
        A node is not kept any more.
        """
        self._obeys.pop(teller, None)
        self._numbers.pop(teller, None)

    def status(self, present: Iterable[Teller]) -> dict[str, object]:
        """
        Whom the last order has reached, of the nodes that are ``present``; of nothing where there was none.
        """
        if self._order is None:
            return {}
        meant = sorted(
            (teller for teller in present if (teller.run, teller.attempt) in self._runs), key=lambda item: item.node
        )
        reached = [self.name(teller) for teller in meant if self._obeys.get(teller) == self._number(teller)]
        waiting = [name for teller in meant if (name := self.name(teller)) not in reached]
        return {"order": str(self._order), "reached": reached, "waiting": waiting}

    def name(self, teller: Teller) -> str:
        """
        ``teller`` among nodes of several runs.
        """
        run = (teller.run, teller.attempt)
        return teller.node if run == self._own else f"{teller.node} of {teller.run}-{teller.attempt}"

    def _number(self, teller: Teller) -> int:
        order = self._order.number if self._order is not None else 0
        return self._numbers.get(teller, order)

    def _keep(self) -> None:
        numbers = [
            (teller.node, teller.run, teller.attempt, number)
            for teller, number in sorted(self._numbers.items(), key=str)
        ]
        kept = orjson.dumps({"order": self._order, "runs": sorted(self._runs), "numbers": numbers}).decode()

        def work(connection: sqlite3.Connection) -> object:
            return connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (DISPATCH, kept))

        self._store.submit(work).add_done_callback(_noted)


def _noted(future: "Future[object]") -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        LOG.error("an order is not in the store: %s; a restart would not know of it", error)
