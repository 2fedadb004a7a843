"""
The forwarder: sends what lies in the inbox to the upstream, in order, at least once.

Owns batching, retries, and what happens to a batch that the upstream will never take or that has come round. Its
place in the inbox is in the store, so it goes on where it was after a restart. Runs on a thread of its own. Spans of
others that lie in a step's trace are given their step and version on the way.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope import names
from stepscope_sidecar import chain, inbox
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.inbox import Parcel
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.spans import each, own_attributes
from stepscope_sidecar.steps import Steps
from stepscope_sidecar.store import Store
from stepscope_sidecar.transport import Answer, Transport

LOG = logging.getLogger(__name__)

BATCH_PARCELS = 32
BATCH_BYTES = 1024**2
"""One request carries up to about 4,000 spans: well under the 4 MiB that many receivers take."""

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 30.0
"""Seconds. An upstream that comes back is noticed within half a minute."""

LONGEST_RETRY_AFTER = 300.0
"""Seconds; an upstream that asks for more is asked again all the same."""

SERVER_ERRORS = 10
"""A batch that an upstream fails on so often (500) is itself the cause: about three minutes of trying."""

OUTBOX_BYTES = 2 * 1024**3
"""What may wait for an upstream that is away or slow: some seven million spans. Then the oldest are given up."""

CIRCLE = (
    "spans come back that have been here: the upstream endpoint (OTEL_EXPORTER_OTLP_*) leads round to this sidecar;"
    " such spans are kept and not forwarded again"
)
"""What is said of it, once in the log and as a warning of the run."""

FLUSH_POLL = 0.05
"""Seconds between looks at what is left while somebody waits for the outbox to empty."""

NEVER = frozenset({400, 413, 415, 422, 431, 501})
"""Answers that say that this very batch will never be taken. Others (401, 404: a wrong setting) may change."""


@dataclass(kw_only=True, slots=True)
class _Attempts:
    """
    What the current batch has met so far.
    """

    backoff: float = FIRST_BACKOFF
    server_errors: int = 0
    told: bool = False
    singly: int = 0
    """Requests to send one by one, because they were refused together."""


@dataclass(kw_only=True)
class Forwarder:
    """
    Sends the inbox of ``store`` through ``transport``. :meth:`start` once, :meth:`close` in the end.
    """

    store: Store
    transport: Transport
    instance: str = ""
    """The name of this sidecar, which it adds to the chain of what it sends."""
    clock: Callable[[], int] = time.time_ns
    jitter: Callable[[], float] = random.random
    outbox_bytes: int = OUTBOX_BYTES
    failure: BaseException | None = None
    circling: bool = False
    """Whether spans have come back."""
    _wake: threading.Event = field(default_factory=threading.Event)
    _hurry: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Event = field(default_factory=threading.Event)
    _attempts: _Attempts = field(default_factory=_Attempts)
    _full: bool = False
    """Whether it has been said that the outbox is full, which lasts until half of it is free."""
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """
        Begin to forward.
        """
        self.store.watch(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="stepscope-forward", daemon=True)
        self._thread.start()

    def flush(self, *, timeout: float) -> int:
        """
        Wait until everything received so far has been sent or set aside; returns how many spans are left.
        """
        deadline = time.monotonic() + timeout
        self._attempts.backoff = FIRST_BACKOFF
        self._hurry.set()
        with open_reader(self.store.path) as reader:
            while (left := reader.pending()) and time.monotonic() < deadline and self.failure is None:
                self._closing.wait(FLUSH_POLL)
        return left

    def close(self, *, timeout: float = 5.0) -> None:
        """
        End after the request in flight. What is left stays in the outbox for the next start.
        """
        self._closing.set()
        self._hurry.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)
        self.transport.close()

    def _run(self) -> None:
        try:
            with open_reader(self.store.path) as reader:
                while not self._closing.is_set():
                    self._wake.clear()
                    delay = self.round(reader)
                    if delay is None:
                        self._wake.wait()
                    elif delay:
                        self._hurry.wait(delay)
                        self._hurry.clear()
        except BaseException as error:
            self.failure = error
            LOG.exception("the forwarder has ended")

    def round(self, reader: Reader) -> float | None:
        """
        Send one batch. Returns how long to wait before the next round; None when there is nothing to send.
        """
        try:
            self._trim(reader)
            parcels = reader.waiting(parcels=1 if self._attempts.singly else BATCH_PARCELS, limit=BATCH_BYTES)
            if not parcels:
                return None
            back, alike = next(groupby(parcels, key=lambda parcel: chain.circles(parcel.via, self.instance)))
            parcels = list(alike)
            if back:
                self._pass_over(parcels)
                return 0.0
            via = chain.union(parcel.via for parcel in parcels)
            answer = self.transport.send(self._body(parcels), via=(*via, self.instance) if self.instance else via)
            return self._settle(parcels, answer)
        except StoreError as error:
            LOG.warning("cannot go on forwarding now: %s", error)
            return self._longer(None)

    def _settle(self, parcels: list[Parcel], answer: Answer) -> float:
        attempts = self._attempts
        if 200 <= answer.status < 300:
            self._accepted(parcels, answer)
            return 0.0
        if answer.status >= 500 and answer.status not in {501, 502, 503, 504}:
            attempts.server_errors += 1
        if answer.status not in NEVER and attempts.server_errors < SERVER_ERRORS:
            if not attempts.told:
                attempts.told = True
                LOG.warning("upstream does not take spans now (%s %s); kept", answer.status or "", answer.message)
            return self._longer(answer.retry_after)
        if len(parcels) > 1:
            self._attempts = _Attempts(singly=len(parcels))
            return 0.0
        self._refused(parcels[0], answer)
        return 0.0

    def _pass_over(self, parcels: list[Parcel]) -> None:
        if not self.circling:
            self.circling = True
            LOG.warning("%s (they came by %s)", CIRCLE, " > ".join(parcels[0].via))
        self.store.submit(lambda connection: inbox.pass_over(connection, parcels)).result()

    def _accepted(self, parcels: list[Parcel], answer: Answer) -> None:
        spans = sum(parcel.spans for parcel in parcels)
        rejected = min(max(answer.rejected, 0), spans)
        if rejected:
            LOG.warning("upstream rejected %d of %d spans: %s", rejected, spans, answer.message)
        self.store.submit(
            lambda connection: inbox.forwarded(
                connection, last=parcels[-1].id, spans=spans - rejected, rejected=rejected
            )
        ).result()
        self._next()

    def _refused(self, parcel: Parcel, answer: Answer) -> None:
        LOG.error(
            "upstream refused %d spans (%d %s); set aside in the store", parcel.spans, answer.status, answer.message
        )
        now = self.clock()
        self.store.submit(
            lambda connection: inbox.set_aside(
                connection, parcel, status=answer.status, message=answer.message, unix_ns=now, reason="refused"
            )
        ).result()
        self._next()

    def _next(self) -> None:
        if self._attempts.told:
            LOG.info("upstream takes spans again")
        self._attempts = _Attempts(singly=max(0, self._attempts.singly - 1))

    def _longer(self, retry_after: float | None) -> float:
        delay = self._attempts.backoff * (0.5 + self.jitter() / 2)
        self._attempts.backoff = min(self._attempts.backoff * 2, LONGEST_BACKOFF)
        return delay if retry_after is None else min(max(retry_after, delay), LONGEST_RETRY_AFTER)

    def _trim(self, reader: Reader) -> None:
        waiting = reader.waiting_bytes()
        if waiting <= self.outbox_bytes:
            self._full = self._full and waiting > self.outbox_bytes // 2
            return
        lost = self.store.submit(lambda connection: inbox.give_up(connection, limit=self.outbox_bytes)).result()
        if not self._full:
            self._full = True
            LOG.error(
                "the outbox is full: %d spans will not be forwarded (they are in the store); more of them are counted,"
                " and not told of again",
                lost,
            )

    def _body(self, parcels: list[Parcel]) -> bytes:
        # Requests joined end to end are one request: that is how protobuf reads repeated fields.
        return b"".join(enriched(parcel.body, steps=self.store.steps) for parcel in parcels)


def enriched(body: bytes, *, steps: Steps) -> bytes:
    """
    ``body`` with step and version added to the spans of others that lie in the trace of a step.
    """
    request = ExportTraceServiceRequest.FromString(body)
    changed = False
    for _, span in each(request):
        if any(item.key in {names.PARAM_VERSION, names.STEP} for item in span.attributes):
            continue
        if place := steps.place(span.trace_id[:8]):
            span.attributes.extend(own_attributes(place.step, place.param_version))
            changed = True
    return request.SerializeToString() if changed else body
