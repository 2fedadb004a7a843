"""
The one place for a window in this process: who may take it out, and that this happens once.

Owns the lock and the hand-over between threads. Leaves what a profiler does to :mod:`stepscope.recorder`, and when a
window opens and closes to :mod:`stepscope.windows`.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping

from stepscope import loops, wire
from stepscope.complaints import complaints
from stepscope.names import Incomplete, Reason, State
from stepscope.opened import Opened


class Slot:
    """
    Room for one window that records and one that is being closed. Callable from any thread.
    """

    def __init__(self) -> None:
        # The end of a span takes a window out, also in the handler of a signal that came below this lock.
        self._lock = threading.RLock()
        self._closing: Opened | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._early_stop: tuple[str, str] | None = None
        self._starting = False
        self.window: Opened | None = None
        """The one that records. Read without the lock by whoever can bear that it is gone a moment later."""
        self.roaming = False
        """A boundary came on another thread than the one that opened: it may again."""
        self.outcome: Mapping[str, str] = {"state": "", "reason": "", "window": ""}
        """What became of the window asked for last."""

    @property
    def busy(self) -> bool:
        """
        Whether a window records, is being closed, or has a profiler that is starting.
        """
        return self.window is not None or self._starting or not self._idle.is_set()

    def listed(self) -> list[wire.OpenWindow]:
        """
        The windows that are open, to be told when registering again.
        """
        with self._lock:
            return [window.listed() for window in (self.window, self._closing) if window is not None]

    def expect(self) -> None:
        """
        A window is about to be asked for: stops that come from now on may be meant for it.
        """
        self._early_stop = None

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """
        Inside, a profiler's start is awaited: no other may begin meanwhile.
        """
        self._starting = True
        try:
            yield
        finally:
            self._starting = False

    def put(self, window: Opened) -> None:
        """
        ``window`` records. Where a stop came while its profiler was starting, it is to end at once.
        """
        with self._lock:
            if self._early_stop and self._early_stop[0] == window.grant.window:
                window.pending = (self._early_stop[1], Incomplete.STOPPED)
            self.window = window
        self.settle(State.RECORDING, "", window.grant.window)

    def announce(self, *, trace_id: str, span_id: str) -> Opened | None:
        """
        The window belongs to that span; it, or ``None`` where there is none to tell of.
        """
        with self._lock:
            window = self.window
            if window is None or window.announced:
                return None
            window.trace_id, window.span_id, window.announced = trace_id, span_id, True
        return window

    def stop(self, window_id: str, reason: str) -> None:
        """
        The window of that id is to end as soon as the right thread comes by; it may be starting right now. One that
        runs on past its step no longer does.
        """
        with self._lock:
            window = self.window
            if window is None:
                self._early_stop = (window_id, reason)
            elif window.grant.window == window_id and (window.held or not window.pending):
                window.held, window.pending = False, (reason, Incomplete.STOPPED)

    def take(self, *, version: int, reason: str, incomplete: str, boundary: bool = False) -> Opened | None:
        """
        Claim the window for closing: whoever gets it closes it, everybody else finds nothing open.
        """
        with self._lock:
            window = self.window
            if window is None:
                return None
            if not window.yields_here:
                if boundary:
                    self._leave_to_opener(window, version)
                return None
            if window.pending:
                # What was meant to stop it earlier says why, wherever it is carried out.
                reason, incomplete = window.pending
            self.window, self._closing = None, window
            self._idle.clear()
        window.version = version if window.version is None else window.version
        window.reason, window.incomplete = reason, window.incomplete or incomplete
        return window

    def hold(self, *, version: int, incomplete: str) -> Opened | None:
        """
        The window's step is over, but its profiler runs on until it is taken; it, or ``None`` where it has to be taken
        now: it is to end for another reason, or another thread's.
        """
        with self._lock:
            window = self.window
            if window is None or window.pending or not window.announced:
                return None
            if not window.yields_here:
                return None
            window.held, window.pending = True, (Reason.BOUNDARY, Incomplete.CLOSED_LATE)
            window.version, window.lingered = version, True
            window.incomplete = window.incomplete or incomplete
        return window

    def closed(self) -> None:
        """
        What was taken is closed.
        """
        # At once, for who asks whether anything is open, and opens if not.
        with self._lock:
            self._idle.set()
            self._closing = None

    def drop(self, window: Opened) -> bool:
        """
        Give ``window`` up, whoever's it is; whether it was still there.
        """
        with self._lock:
            if self.window is not window:
                return False
            self.window = None
        return True

    def wait(self, timeout: float) -> bool:
        """
        Wait until nothing is being closed; not for what this thread's own event loop would have to do.
        """
        closing = self._closing
        loop = None if closing is None else closing.engine_loop
        return self._idle.wait(timeout if loop is None or loops.waits(loop) else 0.0)

    def settle(self, state: str, reason: str, window: str) -> None:
        """
        Note what became of the window asked for last.
        """
        self.outcome = {"state": state, "reason": reason, "window": window}

    def forget(self) -> None:
        """
        This is a forked child: locks and windows belong to its parent.
        """
        self._lock = threading.RLock()
        self.window = self._closing = None
        self._starting = False
        self._idle = threading.Event()
        self._idle.set()
        self.settle(State.DENIED, Reason.FORKED_CHILD, "")

    def _leave_to_opener(self, window: Opened, version: int) -> None:
        self.roaming = True
        if window.version is None:
            window.version = version
            window.pending = window.pending or (Reason.WRONG_THREAD, Incomplete.CLOSED_LATE)
        complaints.warn(
            "wrong thread",
            "the boundary of step %s came on another thread than its opening: the window ends at the next span of the "
            "thread that opened it, and later ones use a level that any thread may end, where the tool has one",
            window.step,
        )
