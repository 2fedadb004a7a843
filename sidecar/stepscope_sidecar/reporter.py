"""
The node's side of reports: what has changed here goes to the sidecar upstream, soon, and again until it is kept.

Owns what has not been told yet, the pace, and the estimate of the clock. Runs in the event loop beside the control
socket; nothing here is waited for by a process of the run. An upstream that is no sidecar of ours is left alone.
"""

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from stepscope_sidecar import report
from stepscope_sidecar.batches import Batches
from stepscope_sidecar.clock import Clock, Estimate
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.report import Order, Reply, Report, ReportError
from stepscope_sidecar.rows import MissingRow, WindowRow

LOG = logging.getLogger(__name__)

PERIOD = 5.0
"""Seconds between reports when nothing changes: a node is missed after 30 s."""

GAP = 0.25
"""Seconds between two reports when much changes: one then tells of several windows."""

AWAY = 30.0
"""Seconds, at most, between tries while the upstream is away."""

FOREIGN = 60.0
"""Seconds until an upstream that knows no reports is asked again: it may have been replaced by one that does."""

KEPT = 10_000
"""Changed windows that are remembered while the upstream is away; beyond that all are read from the store again."""

FIRST_BACKOFF = 1.0
"""Seconds until the first of them."""

TAKEN = "taken"
NOT_TAKEN = "foreign"

NOT_OURS = frozenset({301, 302, 303, 307, 308, 404, 405, 409, 410, 415, 501})
"""Answers of something that takes no reports, or none from us."""

NEVER = frozenset({400, 413, 422})
"""Answers that say that this very report will not be taken."""


class Transport(Protocol):
    """
    Sends one report.
    """

    async def send(self, body: bytes) -> tuple[int, bytes]:
        """
        Status and body of the answer; status 0 and a message where there is none. Never raises for what a network does.
        """

    async def close(self) -> None:
        """
        Close connections.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Teller:
    """
    Who reports.
    """

    node: str
    run: str
    attempt: str


class Reporter:
    """
    Tells one upstream of this node. Use it in the event loop alone.
    """

    def __init__(
        self,
        teller: Teller,
        *,
        transport: Transport,
        everything: Callable[[], list[WindowRow]],
        http: Callable[[], str],
        unix_ns: Callable[[], int],
        monotonic_ns: Callable[[], int],
        obey: Callable[[Order], bool] = lambda _: False,
        obeys: int = 0,
        missing: Callable[[], list[MissingRow]] = list,
    ) -> None:
        """
        Report as ``teller``; ``everything`` reads all windows of this node from the store and may block, ``missing``
        all recordings that its processes did not make.

        ``obey`` carries out an order of the upstream, and says whether it could; ``obeys`` is the last one's number.
        """
        self._obey, self._obeys, self._ordered = obey, obeys, obeys
        self._teller, self._transport = teller, transport
        self._everything, self._missing, self._http = everything, missing, http
        self._instance, self._sequence = secrets.token_hex(8), itertools.count(1)
        self._unix_ns, self._monotonic_ns = unix_ns, monotonic_ns
        self._changed = Batches()
        self._all, self._probing = True, False
        self._keeper = self._refused = self._double = ""
        self._state = "not reached yet"
        self._backoff = FIRST_BACKOFF
        self._now, self._one = asyncio.Event(), asyncio.Lock()
        self._leaving = False
        self._clock = Clock()

    @property
    def unsent(self) -> int:
        """
        Windows and missing recordings that the upstream, if it takes reports, has not been told of as they are.
        """
        return 0 if self._state == NOT_TAKEN else len(self._changed) + self._all

    @property
    def taken(self) -> bool:
        """
        Whether the upstream is a sidecar, as far as its last answer goes.
        """
        return self._keeper != "" and self._state != NOT_TAKEN

    def changed(self, row: WindowRow) -> None:
        """
        A window is new, or another than it was.
        """
        if self._all and self._state == NOT_TAKEN:
            return
        self._changed.add(row)
        if self._state != TAKEN and len(self._changed) > KEPT:
            self._forget()
        self._now.set()

    def lacking(self, rows: Iterable[MissingRow]) -> None:
        """
        ``rows`` have been found to be missing.
        """
        if not (self._all and self._state == NOT_TAKEN):
            self._changed.lack(rows)
            self._now.set()

    def status(self) -> Mapping[str, object]:
        """
        How reporting stands: ``state`` is taken, foreign, or what is in the way.
        """
        best = self._clock.best
        clock = {} if best is None else {"clock_offset_ns": best.offset_ns, "clock_error_ns": best.error_ns}
        found = "; ".join(filter(None, (self._refused, self._changed.refused)))
        refused = {"refused": found} if found else {}
        return {"state": self._state, "unsent": self.unsent, **refused, **clock}

    @property
    def troubles(self) -> list[str]:
        """
        What the upstream will not take.
        """
        return [f"not taken upstream: {why}" for why in (self._double, self._changed.refused) if why]

    async def work(self) -> None:
        """
        Report until cancelled.
        """
        while not self._leaving:
            delay = await self.round()
            if self._state == TAKEN and delay == PERIOD:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD):
                        await self._now.wait()
                # What changes together goes together.
                delay = GAP
            await asyncio.sleep(delay)
        # The last word is not ours.
        await asyncio.Event().wait()

    async def round(self, *, ending: bool = False) -> float:
        """
        Send one report, after the one that is on its way. Returns how long to wait before the next.
        """
        async with self._one:
            try:
                return PERIOD if self._leaving and not ending else await self._round(ending)
            except Exception as error:  # noqa: BLE001 - whatever a report fails of, the sidecar must not end of it
                return self._longer(f"{type(error).__name__}: {error}")

    async def _round(self, ending: bool) -> float:
        self._now.clear()
        if self._all:
            try:
                found = await asyncio.to_thread(self._everything)
                missing = await asyncio.to_thread(self._missing)
            except StoreError as error:
                LOG.warning("cannot read what is to be reported: %s", error)
                return self._longer("store unreadable")
            self._all = False
            self._changed.found(found)
            self._changed.lack(missing)
        rows = [] if self._probing else self._changed.next()
        self._probing, lacking = False, self._changed.lacking()
        sent, began = self._unix_ns(), self._monotonic_ns()
        body = report.encode(
            Report(
                node=self._teller.node,
                run=self._teller.run,
                attempt=self._teller.attempt,
                http=self._http(),
                clock=self._clock.best,
                ending=ending,
                obeys=self._obeys,
                instance=self._instance,
                sequence=next(self._sequence),
                windows=tuple(rows),
                missing=tuple(lacking),
            )
        )
        status, content = await self._transport.send(body)
        took = self._monotonic_ns() - began
        return self._settle(rows, status, content, missing=lacking, sent=sent, took=took)

    async def leave(self, seconds: float) -> None:
        """
        Tell what has not been told, and that this node's sidecar ends; at most ``seconds``.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._state != NOT_TAKEN:
                    # Only the one that leaves nothing to be told says that it is the last.
                    self._leaving = not self._all and self._changed.fits
                    delay = await self.round(ending=self._leaving)
                    if self._state == TAKEN and self._leaving and not self.unsent:
                        break
                    if self._state != TAKEN:
                        await asyncio.sleep(min(delay, GAP))
        self._leaving = True
        await self._transport.close()

    def _settle(
        self, rows: list[WindowRow], status: int, content: bytes, *, missing: list[MissingRow], sent: int, took: int
    ) -> float:
        self._double = _said(content) if status == report.DOUBLE else ""
        if status in NOT_OURS or self._double:
            return self._foreign(f"it answers {status}: {_said(content)}")
        if status in NEVER and rows:
            return self._sift(rows, f"{status} {_said(content)}")
        if not 200 <= status < 300:
            return self._longer(f"{status or 'no answer'}: {_said(content)}")
        try:
            reply = report.decode_reply(content)
        except ReportError as error:
            return self._foreign(str(error))
        self._kept(rows, missing, reply)
        self._clock.add(
            Estimate.of(sent_unix_ns=sent, took_ns=took, answered_unix_ns=reply.unix_ns, held_ns=reply.held_ns)
        )
        return GAP if self._changed or self._all else PERIOD

    def _sift(self, rows: list[WindowRow], why: str) -> float:
        """
        Find the window that the upstream will not take, and give it up.
        """
        if len(rows) > 1:
            self._changed.halve(rows)
        elif self._state == TAKEN:
            LOG.warning("upstream will not take window %s, which is not listed there: %s", rows[0].window, why)
            self._changed.refuse(rows[0], why)
        else:
            # It may be that no report of this node is taken, whatever window it tells of.
            self._probing = True
        return GAP

    def _kept(self, rows: list[WindowRow], missing: list[MissingRow], reply: Reply) -> None:
        if self._state != TAKEN:
            LOG.info("upstream keeps the windows of this node")
        self._state, self._backoff = TAKEN, FIRST_BACKOFF
        if self._keeper and (reply.keeper != self._keeper or not reply.known):
            # Another store than the one that was told before, or this node had to make room there.
            self._all = True
        if reply.refused and not self._refused:
            LOG.warning("upstream does not keep all windows of this node: %s", reply.refused)
        self._refused = reply.refused or self._refused
        self._keeper = reply.keeper
        self._changed.told(rows, missing)
        if reply.order is not None and reply.order.number > self._ordered and not self._leaving:
            # Once, whatever comes of it; the next report, which follows at once, says what did.
            self._ordered = reply.order.number
            if self._obey(reply.order):
                self._obeys = reply.order.number
                self._now.set()

    def _foreign(self, why: str) -> float:
        if self._state != NOT_TAKEN:
            LOG.info("upstream takes no reports of windows (%s); it gets spans alone", why)
        self._state = NOT_TAKEN
        self._forget()
        return FOREIGN

    def _forget(self) -> None:
        self._all = True
        self._changed.forget()

    def _longer(self, why: str) -> float:
        if self._state != why:
            LOG.warning("upstream cannot be told of windows now (%s); they are kept", why)
        self._state = why
        delay, self._backoff = self._backoff, min(self._backoff * 2, AWAY)
        return delay


def _said(content: bytes) -> str:
    return content[:200].decode(errors="replace").strip()
