"""
Finished spans on their way out: a bounded buffer and one thread that posts them as OTLP/HTTP.

They go to whatever address the agent names at the moment, so that a sidecar that was started again gets what waited
for it; straight to ``OTEL_EXPORTER_OTLP_*`` only where there is no sidecar. Nothing here blocks a training thread, and
shutdown keeps its own deadline (that of the SDK takes 7 s with a dead endpoint, whatever it is told).
"""

import gzip
import http.client
import ssl
import threading
import time
import urllib.parse
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan

from stepscope.complaints import complaints

CAPACITY = 32_768
"""Spans kept while nobody takes them: at about 2 KB each some 64 MB, and 16 steps at the request budget."""

BATCH = 512
"""Spans in one request, as in the SDK's batch processor."""

DELAY = 0.5
"""Seconds that spans wait for company; a page that shows the run is that much behind."""

RETRY = 1.0
"""Seconds before another attempt, the pace at which the agent looks for a new sidecar."""

TIMEOUT = 2.0
"""Seconds for one request to a sidecar on this machine; far above its milliseconds, far below a patience."""

GRACE = 10.0
"""Seconds that a lost sidecar is waited for before spans bypass it; it is started again within that."""

RETRYABLE = frozenset({408, 429, 502, 503, 504})
"""Answers after which the OTLP specification has a client try again (and 408, from proxies)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """
    Where to post: a whole URL, and what goes with it.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    compress: bool = False
    timeout: float = TIMEOUT
    certificate: str | None = None


def upstream(environment: Mapping[str, str]) -> Target | None:
    """
    The receiver that ``OTEL_EXPORTER_OTLP_*`` configures, if it does.
    """

    def get(name: str) -> str:
        return environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", environment.get(f"OTEL_EXPORTER_OTLP_{name}", ""))

    url = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    if not url:
        base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
        url = f"{base.rstrip('/')}/v1/traces" if base else ""
    if not url:
        return None
    if get("PROTOCOL").strip() not in {"", "http/protobuf"}:
        complaints.warn("protocol", "without a sidecar spans go out as http/protobuf, not %s", get("PROTOCOL"))
    headers = {}
    for item in get("HEADERS").split(","):
        key, separator, value = item.partition("=")
        if separator:
            headers[key.strip()] = urllib.parse.unquote(value.strip())
    try:
        timeout = float(get("TIMEOUT") or 10)
    except ValueError:
        timeout = 10.0
    return Target(
        url=url,
        headers=headers,
        compress=get("COMPRESSION").strip() == "gzip",
        timeout=timeout,
        certificate=get("CERTIFICATE") or None,
    )


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


class Poster:
    """
    Posts bodies over a connection that is kept. Used by one thread.
    """

    def __init__(self) -> None:
        self._connection: http.client.HTTPConnection | None = None
        self._origin = ""

    def post(self, target: Target, body: bytes, *, timeout: float) -> int:
        """
        The status that ``target`` answers.

        Raises:
            OSError: it cannot be reached, or does not answer in time.
            http.client.HTTPException: it answers something else than HTTP.
        """
        parts = urllib.parse.urlsplit(target.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        kept = self._connection is not None and self._origin == origin
        if not kept:
            self.close()
        headers = {"Content-Type": "application/x-protobuf", **target.headers}
        if target.compress:
            body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            return self._send(target, parts, path, body, headers, timeout)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # The other end may close a kept connection at any moment; only a fresh one tells that it is gone.
            if not kept or isinstance(error, TimeoutError):
                raise
            try:
                return self._send(target, parts, path, body, headers, timeout)
            except (OSError, http.client.HTTPException):
                self.close()
                raise

    def close(self) -> None:
        """
        Let the connection go.
        """
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self,
        target: Target,
        parts: urllib.parse.SplitResult,
        path: str,
        body: bytes,
        headers: dict[str, str],
        timeout: float,
    ) -> int:
        if self._connection is None:
            if parts.scheme == "https":
                secure = ssl.create_default_context(cafile=target.certificate)
                self._connection = http.client.HTTPSConnection(parts.netloc, timeout=timeout, context=secure)
            else:
                self._connection = http.client.HTTPConnection(parts.netloc, timeout=timeout)
            self._origin = f"{parts.scheme}://{parts.netloc}"
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        response.read()
        return response.status


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
        self._drops: Counter[str] = Counter()
        self._drops_lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._failing_since: float | None = None
        self._tried = float("-inf")
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
                self._wake.set()

    def shutdown(self, timeout: float) -> None:
        """
        Deliver what is left, for at most ``timeout`` seconds, and end the thread. What remains is counted as lost.
        """
        if not self._closing.is_set():
            self._deadline = self._clock() + timeout
            self._closing.set()
        self._wake.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        pause = self._delay
        while not self._closing.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            pause = self._delay if self._guarded_drain() else self._retry
        self._guarded_drain()
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
                return False
            if self._waiting is None:
                self._waiting = self._encode()
                if self._waiting is None:
                    continue
            body, count = self._waiting
            try:
                status = self._poster.post(target, body, timeout=timeout)
            except (OSError, http.client.HTTPException, ValueError) as error:
                complaints.warn("deliver", "spans cannot be delivered, they are kept: %s", type(error).__name__)
                if self._missed(target):
                    continue
                return False
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
        with self._drops_lock:
            self._drops[reason] += count

    def _report(self) -> None:
        with self._drops_lock:
            counts, self._drops = dict(self._drops), Counter()
        if counts:
            try:
                self._tell_dropped(counts)
            except Exception as error:  # noqa: BLE001 - the agent's trouble is not that of the spans
                complaints.fault("dropped", error)
