"""
The windows of one attempt on this node: what each is, and the only ways it may change.

A pure state machine. Every window ends in exactly one final state, whatever the order in which messages arrive: a
message that does not fit the state is ignored and counted. Owns no clock, socket or store; whether a window may open
is decided in ``policy``, and what happens around a change in ``controller``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from stepscope import wire
from stepscope.names import Reason, State

LEASED = frozenset({State.OPENING, State.RECORDING, State.CLOSING})
"""The states in which a window's profiler may be running: it holds its process and its devices."""

REASONS = frozenset(reason.value for reason in Reason)

Key = tuple[int, str, int, str]
"""Step, role, rank, tool: of what there is one window at most (W3)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """
    One recording by one profiler in one process, or the denial of one. ``artifact`` is relative to STEPSCOPE_DIR.
    """

    window: str
    step: int
    param_version: int
    role: str
    rank: int
    pid: int
    process_start: int
    node: str = ""
    tool: str = ""
    level: str = ""
    level_fallback: str = ""
    folder: str = ""
    devices: tuple[str, ...] = ()
    forced: bool = False
    state: State = State.OPENING
    reason: str = ""
    detail: str = ""
    asked_unix_ns: int = 0
    opened_unix_ns: int = 0
    closed_unix_ns: int = 0
    version_at_close: int | None = None
    trace_id: str = ""
    span_id: str = ""
    stall: Mapping[str, float] = field(default_factory=dict)
    incomplete_hint: str = ""
    """What the agent knew to be missing when it closed the window; the finaliser has the last word."""
    complete: bool | None = None
    incomplete_reason: str = ""
    incomplete_share: float | None = None
    artifact: str = ""
    bytes: int = 0
    sha256: str = ""

    @property
    def key(self) -> Key:
        """
        What this is the only window of.
        """
        return (self.step, self.role, self.rank, self.tool)

    @property
    def process(self) -> tuple[int, int]:
        """
        The process it records: pid and start, so that a reused pid is another process.
        """
        return (self.pid, self.process_start)

    @property
    def leased(self) -> bool:
        """
        Whether its profiler may be running.
        """
        return self.state in LEASED


class Windows:
    """
    All windows, by id. Not thread-safe: the control loop owns it.

    Each transition answers the changed window, or ``None`` where it does not fit and was ignored.
    """

    def __init__(self) -> None:
        self._windows: dict[str, Window] = {}
        self.ignored: Counter[str] = Counter()
        """Messages that fitted no window in a state for them, by kind."""

    def __iter__(self) -> Iterator[Window]:
        return iter(list(self._windows.values()))

    def __len__(self) -> int:
        return len(self._windows)

    def get(self, window: str) -> Window | None:
        """
        The window of that id.
        """
        return self._windows.get(window)

    def leased(self, *, process: tuple[int, int] | None = None) -> list[Window]:
        """
        Windows whose profiler may be running, of all processes or of one.
        """
        return [w for w in self._windows.values() if w.leased and process in {None, w.process}]

    def holder(self, devices: Iterable[str]) -> Window | None:
        """
        The window that records one of ``devices`` now.
        """
        wanted = set(devices)
        return next((w for w in self._windows.values() if w.leased and wanted.intersection(w.devices)), None)

    def of_key(self, key: Key) -> Window | None:
        """
        The window that was granted for ``key``, whatever became of it.
        """
        return next((w for w in self._windows.values() if w.key == key and w.state is not State.DENIED), None)

    def put(self, window: Window) -> Window:
        """
        Hold a window that was granted, denied or found in the store.
        """
        if window.window in self._windows:
            raise ValueError(f"window {window.window} is there already")
        self._windows[window.window] = window
        return window

    def forget(self, *, before_step: int) -> None:
        """
        Let go of final windows of steps before ``before_step``; the store has them.
        """
        for window in self:
            if window.state.final and window.step < before_step:
                del self._windows[window.window]

    # Transitions -----------------------------------------------------------------------------------------------

    def started(self, message: wire.Started) -> Window | None:
        """
        The profiler runs. Where a stop was sent meanwhile, the window stays closing.
        """
        window = self._windows.get(message.window)
        if window is None or window.state not in {State.OPENING, State.CLOSING} or window.opened_unix_ns:
            return self._ignore("started")
        return self._set(
            window,
            state=State.RECORDING if window.state is State.OPENING else State.CLOSING,
            trace_id=message.trace_id,
            span_id=message.span_id,
            opened_unix_ns=message.opened_unix_ns,
            level=message.level,
            level_fallback=message.level_fallback or window.level_fallback,
            stall={**window.stall, **message.stall},
        )

    def stopping(self, window_id: str, *, reason: str) -> Window | None:
        """
        A stop was sent to the process; the window is not over before the process says so.
        """
        window = self._windows.get(window_id)
        if window is None or window.state not in {State.OPENING, State.RECORDING}:
            return self._ignore("stop")
        return self._set(window, state=State.CLOSING, reason=reason)

    def closed(self, record: wire.Closed) -> Window | None:
        """
        The process has written the raw recording: it is to be finalised.
        """
        window = self._windows.get(record.window)
        if window is None or not window.leased:
            return self._ignore("closed")
        return self._set(
            window,
            state=State.FINALISING,
            reason=_reason(record.reason, Reason.BOUNDARY),
            detail=window.detail if record.reason in REASONS else record.reason,
            version_at_close=record.version_at_close,
            opened_unix_ns=record.opened_unix_ns,
            closed_unix_ns=record.closed_unix_ns,
            trace_id=record.trace_id or window.trace_id,
            span_id=record.span_id or window.span_id,
            level=record.level or window.level,
            stall={**window.stall, **record.stall},
            incomplete_hint=record.incomplete,
        )

    def ended(self, message: wire.Ended, *, unix_ns: int) -> Window | None:
        """
        The process says that a granted window never recorded, or that its profiler failed.
        """
        window = self._windows.get(message.window)
        if window is None or not window.leased:
            return self._ignore("ended")
        expired = message.state == State.EXPIRED
        return self._set(
            window,
            state=State.EXPIRED if expired else State.FAILED,
            reason=_reason(message.reason, Reason.GRANT_TOO_LATE if expired else Reason.START_ERROR),
            detail=message.detail or ("" if message.reason in REASONS else message.reason),
            closed_unix_ns=unix_ns if window.opened_unix_ns else 0,
            stall={**window.stall, **message.stall},
        )

    def lost(self, window_id: str, *, reason: Reason, unix_ns: int) -> Window | None:
        """
        Nobody will close it any more: its process or its record is gone.
        """
        window = self._windows.get(window_id)
        if window is None or not window.leased:
            return self._ignore("lost")
        return self._set(
            window, state=State.ABORTED, reason=reason, closed_unix_ns=unix_ns if window.opened_unix_ns else 0
        )

    def expire(self, window_id: str) -> Window | None:
        """
        It was granted long ago and never started.
        """
        window = self._windows.get(window_id)
        if window is None or window.state is not State.OPENING:
            return self._ignore("expire")
        return self._set(window, state=State.EXPIRED, reason=Reason.NOT_STARTED)

    def ready(
        self,
        window_id: str,
        *,
        artifact: str,
        size: int,
        sha256: str,
        complete: bool,
        incomplete_reason: str = "",
        incomplete_share: float | None = None,
    ) -> Window | None:
        """
        The final artifact is in its place.
        """
        window = self._windows.get(window_id)
        if window is None or window.state is not State.FINALISING:
            return self._ignore("finalised")
        return self._set(
            window,
            state=State.READY,
            artifact=artifact,
            bytes=size,
            sha256=sha256,
            complete=complete,
            incomplete_reason=incomplete_reason,
            incomplete_share=incomplete_share,
        )

    def failed(self, window_id: str, *, reason: str, detail: str = "") -> Window | None:
        """
        What the process left could not be made an artifact of.
        """
        window = self._windows.get(window_id)
        if window is None or window.state is not State.FINALISING:
            return self._ignore("finalised")
        return self._set(window, state=State.FAILED, reason=_reason(reason, Reason.ARTIFACT_INVALID), detail=detail)

    def adopt(self, window: Window) -> Window | None:
        """
        A process that registers again has this window open.

        A window that is not known (its sidecar died before the row was written) is taken in. Where its device or
        its process is held by another, it is closing from the start: the caller tells the process to stop.
        """
        known = self._windows.get(window.window)
        if known is not None:
            if not known.leased or known.process != window.process:
                return self._ignore("adopt")
            running = bool(window.trace_id or known.trace_id)
            state = State.RECORDING if running and known.state is State.OPENING else known.state
            return self._set(
                known,
                state=state,
                trace_id=window.trace_id or known.trace_id,
                span_id=window.span_id or known.span_id,
                opened_unix_ns=(window.opened_unix_ns if running else 0) or known.opened_unix_ns,
                level=window.level or known.level,
                devices=known.devices or window.devices,
                stall={**known.stall, **window.stall},
            )
        if self.of_key(window.key) is not None:
            return self._ignore("adopt")
        if self.leased(process=window.process):
            window = replace(window, state=State.CLOSING, reason=Reason.BUSY_PROCESS)
        elif self.holder(window.devices):
            window = replace(window, state=State.CLOSING, reason=Reason.BUSY_DEVICE)
        else:
            window = replace(window, state=State.RECORDING if window.trace_id else State.OPENING)
        return self.put(window)

    def _set(self, window: Window, **changes: object) -> Window:
        changed = replace(window, **changes)  # type: ignore[arg-type]  # the callers above name fields
        self._windows[window.window] = changed
        return changed

    def _ignore(self, kind: str) -> Window | None:
        self.ignored[kind] += 1
        return None


def _reason(text: str, otherwise: Reason) -> str:
    return text if text in REASONS else otherwise
