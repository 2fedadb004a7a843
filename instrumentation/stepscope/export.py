"""
Finished spans on their way out: a bounded buffer and one thread that posts them as OTLP/HTTP.

They go to whatever address the agent names at the moment, so that a sidecar that was started again gets what waited
for it; straight to ``OTEL_EXPORTER_OTLP_*`` only where there is no sidecar. Nothing here blocks a training thread, and
shutdown keeps its own deadline (that of the SDK takes 7 s with a dead endpoint, whatever it is told).
"""

import http.client
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

from opentelemetry.sdk.trace import ReadableSpan

from stepscope.complaints import complaints
from stepscope.poster import Poster, Target
from stepscope.tally import Bell, Tally

CAPACITY = 32_768
"""Spans kept while nobody takes them: at about 2 KB each some 64 MB, and 16 steps at the request budget."""

BATCH = 512
"""Spans in one request, as in the SDK's batch processor."""

DELAY = 0.5
"""Seconds that spans wait for company; a page that shows the run is that much behind."""

SOON = 0.05
"""Seconds between two requests where somebody is in a hurry: a worker with a thousand calls a second posts 20 times."""

RETRY = 1.0
"""Seconds before another attempt, the pace at which the agent looks for a new sidecar."""

AGAIN = 0.1
"""Seconds before another attempt of a process that leaves, while the sidecar is there but late, or has no room."""

GRACE = 10.0
"""Seconds that a lost sidecar is waited for before spans bypass it; it is started again within that."""

RETRYABLE = frozenset({408, 429, 502, 503, 504})
"""Answers after which the OTLP specification has a client try again (and 408, from proxies)."""


def pace(environment: Mapping[str, str]) -> tuple[float, int]:
    """
    Seconds that spans wait for company and how many are kept: ``OTEL_BSP_*`` where set, else our own.
    """

    def number(name: str, default: float) -> float:
        text = environment.get(name, "").strip()
        try:
            return max(1.0, float(text)) if text else default
        except ValueError:
            complaints.warn("pace", "%s=%r is no number; %g is used", name, text, default)
            return default

    return number("OTEL_BSP_SCHEDULE_DELAY", DELAY * 1e3) / 1e3, int(number("OTEL_BSP_MAX_QUEUE_SIZE", CAPACITY))


class Outbox:
    """
    Takes finished spans on any thread and delivers them from one of its own.

    Delivery is at least once: where an answer is lost, the same spans (by id) are sent again.
    """

    def __init__(
        self,
        *,
        endpoint: Callable[[], str],
        upstream: Target | None = None,
        dropped: Callable[[Mapping[str, int]], None],
        delay: float = DELAY,
        retry: float = RETRY,
        capacity: int = CAPACITY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._upstream = upstream
        self._tell_dropped = dropped
        self._delay = delay
        self._retry = retry
        self._capacity = capacity
        self._clock = clock
        self._queue: deque[ReadableSpan] = deque()
        self._waiting: tuple[bytes, int] | None = None
        self._drops = Tally()
        self._bell = Bell()
        self._closing = threading.Event()
        self._hurried = False
        self._delivers = True
        self._deadline = float("inf")
        self._failing_since: float | None = None
        self._tried = float("-inf")
        self._answers = False
        """Whether whoever was tried last is there, and only late or busy."""
        self._poster = Poster()
        self._thread = threading.Thread(target=self._run, name="stepscope-export", daemon=True)
        self._thread.start()

    def __call__(self, span: ReadableSpan) -> None:
        """
        Take ``span``.
        """
        queue = self._queue
        if self._closing.is_set():
            self._drop("after_shutdown", 1)
        elif len(queue) >= self._capacity:
            self._drop("buffer_full", 1)
        else:
            queue.append(span)
            if len(queue) == BATCH:
                self._bell.ring()

    def hurry(self) -> None:
        """
        Send what there is without waiting for company: this process may be ended at any moment, and without warning.
        """
        if self._queue and self._delivers and not self._hurried:
            self._hurried = True
            self._bell.ring()

    def again(self) -> None:
        """
        Send now what waits: there is a sidecar again.
        """
        self._bell.ring()

    def shutdown(self, timeout: float) -> None:
        """
        Deliver what is left, for at most ``timeout`` seconds, and end the thread. What remains is counted as lost.
        """
        if not self._closing.is_set():
            self._deadline = self._clock() + timeout
            self._closing.set()
        self._bell.ring()
        self._thread.join(timeout)

    def _run(self) -> None:
        pause = self._delay
        while not self._closing.is_set():
            self._bell.wait(pause)
            hurried, self._hurried = self._hurried, False
            self._delivers = self._guarded_drain()
            pause = self._delay if self._delivers else self._retry
            if hurried:
                self._closing.wait(SOON)
        while not self._guarded_drain() and self._answers and self._clock() + AGAIN < self._deadline:
            self._bell.wait(AGAIN)
        lost = len(self._queue) + (self._waiting[1] if self._waiting else 0)
        if lost:
            self._drop("undelivered_at_exit", lost)
        self._report()
        self._poster.close()

    def _guarded_drain(self) -> bool:
        try:
            delivered = self._drain()
        except Exception as error:  # noqa: BLE001 - this thread must outlive whatever a span or a server holds
            complaints.fault("export", error)
            delivered = False
        self._report()
        return delivered

    def _drain(self) -> bool:
        """
        Send until nothing is left; False where somebody has to be waited for.
        """
        while self._waiting or self._queue:
            target = self._target()
            timeout = min(target.timeout, self._deadline - self._clock()) if target else 0.0
            if target is None or timeout <= 0:
                self._answers = False
                return False
            if self._waiting is None:
                self._waiting = self._encode()
                if self._waiting is None:
                    continue
            body, count = self._waiting
            try:
                status = self._poster.post(target, body, timeout=timeout)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._answers = isinstance(error, TimeoutError)
                complaints.warn("deliver", "spans cannot be delivered, they are kept: %s", type(error).__name__)
                if self._missed(target):
                    continue
                return False
            self._answers = True
            if status in RETRYABLE:
                return False
            if target is not self._upstream:
                self._failing_since = None
            if status >= http.client.BAD_REQUEST:
                self._drop("rejected", count)
                complaints.warn("rejected", "the OTLP receiver answered %d to %d spans; they are lost", status, count)
            self._waiting = None
        return True

    def _encode(self) -> tuple[bytes, int] | None:
        # Imported on this thread: protobuf takes 50 ms that no start should wait for.
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
        try:
            return encode_spans(batch).SerializeToString(), len(batch)
        except Exception as error:  # noqa: BLE001 - one value that cannot be encoded must not stop the rest
            self._drop("unencodable", len(batch))
            complaints.fault("encode", error)
            return None

    def _target(self) -> Target | None:
        base = self._endpoint()
        if not base or (self._upstream is not None and self._given_up()):
            return self._upstream
        self._tried = self._clock()
        return Target(url=f"{base.rstrip('/')}/v1/traces")

    def _given_up(self) -> bool:
        """
        Whether the sidecar has been away too long; it is tried again now and then.
        """
        now = self._clock()
        if self._failing_since is None:
            return False
        return self._closing.is_set() or (now - self._failing_since >= GRACE and now - self._tried < GRACE)

    def _missed(self, target: Target) -> bool:
        """
        ``target`` could not be reached; whether another can be tried at once.
        """
        if target is self._upstream:
            return False
        if self._failing_since is None:
            self._failing_since = self._clock()
        return self._upstream is not None and self._given_up()

    def _drop(self, reason: str, count: int) -> None:
        self._drops.add(reason, count)

    def _report(self) -> None:
        if counts := {reason: int(count) for reason, count in self._drops.take().items()}:
            try:
                self._tell_dropped(counts)
            except Exception as error:  # noqa: BLE001 - the agent's trouble is not that of the spans
                complaints.fault("dropped", error)
