"""
The windows of one attempt on this node: what each is, and the only ways it may change.

A pure state machine. Every window ends in exactly one final state, whatever the order in which messages arrive: a
message that does not fit the state is ignored and counted. Owns no clock, socket or store; whether a window may open
is decided in ``policy``, and what happens around a change in ``recordings``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from stepscope import wire
from stepscope.names import Reason, State
from stepscope_sidecar.held import Held

LEASED = frozenset({State.OPENING, State.RECORDING, State.CLOSING})
"""The states in which a window's profiler may be running: it holds its process and its devices."""

MAX_ALSO = 100
"""Further steps whose spans are remembered for one window, to be linked: a cap ends it long before."""

REASONS = frozenset(reason.value for reason in Reason)

Kin = tuple[str, int, str]
"""Role, rank, tool: windows that may follow, and never overlap, each other."""

Key = tuple[int, str, int, str]
"""Step, role, rank, tool: of what there is one window at most (W3), unless it was lost with its process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """
    One recording by one profiler in one process, or the denial of one. ``artifact`` is relative to STEPSCOPE_DIR.
    """

    window: str
    step: int
    last_step: int = 0
    """The last step that it covers, where consecutive steps share it; 0: ``step`` alone."""
    also: tuple[tuple[str, str], ...] = ()
    """Trace and span ids of the process's spans of those further steps."""
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
    beside: str = ""
    """The window that this one goes along with: of a process that is not registered, recorded from outside."""
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
        return (self.step, *self.kin)

    @property
    def kin(self) -> Kin:
        """
        Whose windows it is one of.
        """
        return (self.role, self.rank, self.tool)

    def covers(self, step: int) -> bool:
        """
        Whether ``step`` is recorded in it, or was to be.
        """
        return self.step <= step <= max(self.step, self.last_step)

    @property
    def process(self) -> tuple[int, int]:
        """
        The process it records: pid and start, so that a reused pid is another process.
        """
        return (self.pid, self.process_start)

    def bars(self, process: tuple[int, int]) -> bool:
        """
        Whether ``process`` may have no window of the same key. One that was started again in the place of another may,
        where that was lost with its window.
        """
        lost = self.state is State.ABORTED and self.reason == Reason.PROCESS_LOST
        return self.state is not State.DENIED and not (lost and self.process != process)

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
        self._held = Held()
        self.ignored: Counter[str] = Counter()
        """Messages that fitted no window in a state for them, by kind."""

    def __iter__(self) -> Iterator[Window]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def get(self, window: str) -> Window | None:
        """
        The window of that id.
        """
        return self._held.get(window)

    def leased(self, *, process: tuple[int, int] | None = None) -> list[Window]:
        """
        Windows whose profiler may be running, of all processes or of one.
        """
        return [window for window in self._held.leased() if process in {None, window.process}]

    def unfinished(self) -> list[Window]:
        """
        Windows that are not final.
        """
        return self._held.unfinished()

    def holder(self, devices: Iterable[str]) -> Window | None:
        """
        The window that records one of ``devices`` now.
        """
        wanted = set(devices)
        return next((window for window in self._held.leased() if wanted.intersection(window.devices)), None)

    def asked(self, key: Key) -> Iterator[Window]:
        """
        The windows that were granted or denied for ``key``.
        """
        return self._held.of(key[1:], key[0])

    def of_step(self, step: int) -> Iterator[Window]:
        """
        The windows that cover ``step``, denied ones too.
        """
        return self._held.of_step(step)

    def of_key(self, key: Key, *, process: tuple[int, int]) -> Window | None:
        """
        The window that was granted for ``key``, whatever became of it, so that ``process`` gets no other.
        """
        return next((window for window in self.asked(key) if window.bars(process)), None)

    def put(self, window: Window) -> Window:
        """
        Hold a window that was granted, denied or found in the store.
        """
        if self._held.get(window.window) is not None:
            raise ValueError(f"window {window.window} is there already")
        self._held.put(window)
        return window

    def forget(self, *, before_step: int) -> None:
        """
        Let go of final windows of steps before ``before_step``; the store has them.
        """
        self._held.forget(before_step=before_step)

    # Transitions -----------------------------------------------------------------------------------------------

    def started(self, message: wire.Started) -> Window | None:
        """
        The profiler runs. Where a stop was sent meanwhile, the window stays closing.
        """
        window = self._held.get(message.window)
        if window is None or window.state not in {State.OPENING, State.CLOSING} or window.opened_unix_ns:
            return self._ignore("started")
        return self._set(
            window,
            state=State.RECORDING if window.state is State.OPENING else State.CLOSING,
            trace_id=message.trace_id,
            span_id=message.span_id,
            opened_unix_ns=message.opened_unix_ns,
            level=message.level,
            level_fallback=message.level_fallback,
            stall={**window.stall, **message.stall},
        )

    def continued(self, message: wire.Continued) -> Window | None:
        """
        It goes on into another step. Told again, or where another window has that step, it changes nothing.
        """
        window = self._held.get(message.window)
        if window is None or not window.leased or message.step <= max(window.step, window.last_step):
            return self._ignore("continued")
        if self.of_key((message.step, *window.kin), process=window.process) is not None:
            return self._ignore("continued")
        also = (*window.also, (message.trace_id, message.span_id))
        return self._set(window, last_step=message.step, also=also[:MAX_ALSO])

    def stopping(self, window_id: str, *, reason: str) -> Window | None:
        """
        A stop was sent to the process; the window is not over before the process says so.
        """
        window = self._held.get(window_id)
        if window is None or window.state not in {State.OPENING, State.RECORDING}:
            return self._ignore("stop")
        return self._set(window, state=State.CLOSING, reason=reason)

    def closed(self, record: wire.Closed) -> Window | None:
        """
        The process has written the raw recording: it is to be finalised.
        """
        window = self._held.get(record.window)
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
            last_step=self._reach(window, record.last_step),
            stall={**window.stall, **record.stall},
            incomplete_hint=record.incomplete,
        )

    def ended(self, message: wire.Ended, *, unix_ns: int) -> Window | None:
        """
        The process says that a granted window never recorded, or that its profiler failed.
        """
        window = self._held.get(message.window)
        if window is None or not window.leased:
            return self._ignore("ended")
        expired = message.state == State.EXPIRED
        # Only the process can find out that a tool does not record there at the level that was granted.
        denied = message.state == State.DENIED and not window.opened_unix_ns
        return self._set(
            window,
            state=State.EXPIRED if expired else State.DENIED if denied else State.FAILED,
            reason=_reason(message.reason, Reason.GRANT_TOO_LATE if expired else Reason.START_ERROR),
            detail=message.detail or ("" if message.reason in REASONS else message.reason),
            closed_unix_ns=unix_ns if window.opened_unix_ns else 0,
            stall={**window.stall, **message.stall},
        )

    def lost(self, window_id: str, *, reason: Reason, unix_ns: int) -> Window | None:
        """
        Nobody will close it any more: its process or its record is gone.
        """
        window = self._held.get(window_id)
        if window is None or not window.leased:
            return self._ignore("lost")
        return self._set(
            window, state=State.ABORTED, reason=reason, closed_unix_ns=unix_ns if window.opened_unix_ns else 0
        )

    def expire(self, window_id: str) -> Window | None:
        """
        It was granted long ago and never started.
        """
        window = self._held.get(window_id)
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
        complete: bool | None,
        incomplete_reason: str = "",
        incomplete_share: float | None = None,
        detail: str = "",
    ) -> Window | None:
        """
        The final artifact is in its place.
        """
        window = self._held.get(window_id)
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
            detail=detail or window.detail,
        )

    def failed(self, window_id: str, *, reason: str, detail: str = "") -> Window | None:
        """
        What the process left could not be made an artifact of.
        """
        window = self._held.get(window_id)
        if window is None or window.state is not State.FINALISING:
            return self._ignore("finalised")
        return self._set(window, state=State.FAILED, reason=_reason(reason, Reason.ARTIFACT_INVALID), detail=detail)

    def adopt(self, window: Window) -> Window | None:
        """
        A process that registers again has this window open.

        A window that is not known (its sidecar died before the row was written) is taken in. Where its device or
        its process is held by another, it is closing from the start: the caller tells the process to stop.
        """
        known = self._held.get(window.window)
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
                level_fallback=window.level_fallback or known.level_fallback,
                devices=known.devices or window.devices,
                last_step=self._reach(known, window.last_step),
                stall={**known.stall, **window.stall},
            )
        if self.of_key(window.key, process=window.process) is not None:
            return self._ignore("adopt")
        window = replace(window, last_step=self._reach(replace(window, last_step=0), window.last_step))
        if self.leased(process=window.process):
            window = replace(window, state=State.CLOSING, reason=Reason.BUSY_PROCESS)
        elif self.holder(window.devices):
            window = replace(window, state=State.CLOSING, reason=Reason.BUSY_DEVICE)
        else:
            window = replace(window, state=State.RECORDING if window.trace_id else State.OPENING)
        return self.put(window)

    def _reach(self, window: Window, last_step: int) -> int:
        """
        The last step that ``window`` covers where its process says ``last_step``: none that is another window's.
        """
        covered = max(window.step, window.last_step)
        others = self._held.after(window.kin, covered)
        reach = min([last_step, *(other.step - 1 for other in others if other.bars(window.process))])
        return reach if reach > covered else window.last_step

    def _set(self, window: Window, **changes: object) -> Window:
        changed = replace(window, **changes)  # type: ignore[arg-type]  # the callers above name fields
        self._held.put(changed)
        return changed

    def _ignore(self, kind: str) -> Window | None:
        self.ignored[kind] += 1
        return None


def _reason(text: str, otherwise: Reason) -> str:
    return text if text in REASONS else otherwise
