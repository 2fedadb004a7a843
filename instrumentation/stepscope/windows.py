"""
The windows of this process: asks for one, starts its profiler, mirrors spans into it, and closes it exactly once.

Owns the order of what happens to a window here, and on which thread. Read :meth:`Windows.open` and
:meth:`Windows.close` first. Leaves who may record to the sidecar, how a profiler is driven to
:mod:`stepscope.profilers`, and when a step begins to its caller. Nothing here raises into training.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

from stepscope import interrupts, recorder, wire
from stepscope.bridge import Bridge, Marker, alive
from stepscope.complaints import complaints
from stepscope.grant import Asked, Control, Granted, Place, ask
from stepscope.names import Incomplete, Reason, State
from stepscope.profilers import Armed, Registry, is_sync
from stepscope.recorder import ENGINE_DEADLINE, Opened
from stepscope.seam import LiveSpans
from stepscope.watchdog import Watch, Watchdog


class Windows:
    """
    At most one window at a time. Boundary calls come from one thread at a time; all the rest from any thread.
    """

    def __init__(
        self,
        *,
        control: Control,
        profilers: Registry,
        tool: str = "torch",
        rank: int = 0,
        world_size: int | None = None,
        live_spans: LiveSpans = tuple,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._control = control
        self._profilers = profilers
        self._tool = tool
        self._rank = rank
        self._world_size = world_size
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._window: Opened | None = None
        self._closing: Opened | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._early_stop: tuple[str, str] | None = None
        self._outcome: dict[str, str] = {"state": "", "reason": "", "window": ""}
        self._watchdog = Watchdog(self._look)
        self._dead = False
        self.live_spans = live_spans
        self.recording = False
        """Whether a window records now. Read on every span."""
        self.other_thread = False
        """Boundary calls may come on other threads than the one that opened: no thread-bound level is used then."""

    def outcome(self) -> Mapping[str, str]:
        """
        What became of the window asked for last.
        """
        return dict(self._outcome)

    def listed(self) -> list[wire.OpenWindow]:
        """
        The window that is open, to be told when registering again.
        """
        with self._lock:
            return [window.listed() for window in (self._window, self._closing) if window is not None]

    # Boundary calls --------------------------------------------------------------------------------------------

    def open(self, *, step: int, param_version: int, forced: bool = False, late: bool = False) -> bool:
        """
        Ask for a window and start its profiler on this thread; whether it records.
        """
        try:
            with interrupts.held():
                granted = self._ask(step=step, param_version=param_version, forced=forced, late=late)
                if granted is not None:
                    return self._begin(granted, recorder.start(granted.profiler, granted.request, granted.stall))
        except Exception as error:  # noqa: BLE001 - training goes on unrecorded
            complaints.fault("opening a window", error)
        return False

    async def aopen(self, *, step: int, param_version: int, forced: bool = False, late: bool = False) -> bool:
        """
        The same for a profiler whose start is a coroutine; any other is started on this thread.
        """
        try:
            with interrupts.held():
                granted = self._ask(step=step, param_version=param_version, forced=forced, late=late)
                if granted is None:
                    return False
                if is_sync(granted.profiler):
                    return self._begin(granted, recorder.start(granted.profiler, granted.request, granted.stall))
            try:
                armed = await recorder.astart(granted.profiler, granted.request, granted.stall)
            except BaseException:
                self._tell(recorder.ended(granted.grant.window, Reason.START_ERROR, recorder.CANCELLED, granted.stall))
                raise
            return self._begin(granted, armed, asyncio.get_running_loop())
        except Exception as error:  # noqa: BLE001 - training goes on unrecorded
            complaints.fault("opening a window", error)
        return False

    def started(self, *, trace_id: str, span_id: str) -> None:
        """
        The process's span has begun: the window belongs to it.
        """
        try:
            with self._lock:
                window = self._window
                if window is None or window.announced:
                    return
                window.trace_id, window.span_id, window.announced = trace_id, span_id, True
            window.metadata = {**self._control.metadata(), **window.describe()}
            if is_sync(window.profiler):
                window.profiler.describe(window.metadata)
            self._control.tell(window.started())
        except Exception as error:  # noqa: BLE001 - the recording is worth keeping without its labels
            complaints.fault("labelling a window", error)
        self._watchdog.wake()

    def close(self, *, version: int, reason: str = Reason.BOUNDARY, incomplete: str = "") -> None:
        """
        Stop what records, if anything does. On a thread that must not stop it: leave that to the one that may.
        """
        with interrupts.held():
            window = self._take(version=version, reason=reason, incomplete=incomplete, boundary=True)
            if window is not None:
                self._finish(window)

    async def aclose(self, *, version: int, reason: str = Reason.BOUNDARY, incomplete: str = "") -> None:
        """
        The same for a profiler whose stop is a coroutine.
        """
        with interrupts.held():
            window = self._take(version=version, reason=reason, incomplete=incomplete, boundary=True)
            if window is None:
                return
            if is_sync(window.profiler):
                self._finish(window)
                return
        try:
            self._tell(await recorder.astop(window, clock_ns=self._clock()))
        except Exception as error:  # noqa: BLE001 - training goes on
            complaints.fault("closing a window", error)
        except BaseException:
            self._tell(window.failed(Reason.STOP_ERROR, recorder.CANCELLED))
            raise
        finally:
            self._finished()

    def end(self, *, version: int, timeout: float) -> None:
        """
        The process leaves: close what is open, wait for what is closing, take no more.
        """
        self._dead = True
        window = self._window
        if window is not None and window.armed.thread_bound and not window.mine:
            self._forsake(window, Reason.WRONG_THREAD, "the thread that opened the window was not there at exit")
        elif window is not None and not is_sync(window.profiler):
            self._forsake(window, Reason.PROCESS_EXIT, "the process ended before the engine's profiler was stopped")
        else:
            self.close(version=version, reason=Reason.PROCESS_EXIT, incomplete=Incomplete.PROCESS_EXIT)
        self._idle.wait(timeout)
        self._watchdog.close(timeout)

    def forget(self) -> None:
        """
        Go inert in a forked child: profiler, locks and threads belong to its parent.
        """
        self._dead, self.recording = True, False
        self._lock = threading.Lock()
        self._window = self._closing = None
        self._outcome = {"state": State.DENIED, "reason": Reason.FORKED_CHILD, "window": ""}

    # Spans -----------------------------------------------------------------------------------------------------

    def span_started(self, span_id: int, name: str) -> None:
        """
        A span has begun on this thread.
        """
        window = self._window
        if window is None:
            return
        if window.pending and self._stop_here(window):
            return
        window.bridge.started(span_id, name)

    def span_ended(self, span_id: int) -> None:
        """
        A span has ended on this thread.
        """
        window = self._window
        if window is None:
            return
        window.bridge.ended(span_id)
        if window.pending:
            self._stop_here(window)

    # From other threads ----------------------------------------------------------------------------------------

    def stop(self, window_id: str, reason: str) -> None:
        """
        The sidecar says stop. Acted on at once, or at the owning thread's next span where nobody else may.
        """
        with self._lock:
            window = self._window
            if window is None:
                # It may be starting right now.
                self._early_stop = (window_id, reason)
                return
            if window.grant.window == window_id and not window.pending:
                window.pending = (reason, Incomplete.STOPPED)
        self._watchdog.wake()

    def _look(self) -> float | None:
        """
        On the watchdog's thread: close what is due, and say how long to wait.
        """
        window = self._window
        if window is None:
            return None
        if not window.pending and (passed := window.watch.passed()):
            window.pending = (passed, Incomplete.CAPPED)
        if window.pending is None:
            return window.watch.pause()
        if not window.announced:
            # Until its span has begun nobody could find the recording; that is a matter of microseconds.
            return 0.01
        if window.armed.thread_bound:
            return None
        if window.loop is not None and not is_sync(window.profiler):
            reason, incomplete = window.pending
            asyncio.run_coroutine_threadsafe(
                self.aclose(version=window.param_version, reason=reason, incomplete=incomplete), window.loop
            )
            return ENGINE_DEADLINE
        self._stop_here(window)
        return None

    def _stop_here(self, window: Opened) -> bool:
        if window.pending is None or not window.announced or (window.armed.thread_bound and not window.mine):
            return False
        reason, incomplete = window.pending
        version = window.param_version if window.version is None else window.version
        with interrupts.held():
            taken = self._take(version=version, reason=reason, incomplete=incomplete)
            if taken is not None:
                self._finish(taken)
        return True

    # Opening ---------------------------------------------------------------------------------------------------

    def _ask(self, *, step: int, param_version: int, forced: bool, late: bool) -> Granted | None:
        if self._dead:
            return None
        self._settle_leftover()
        self._early_stop = None
        refused = self._busy()
        if refused:
            self._control.miss(step=step, param_version=param_version, reason=refused)
            answer: Granted | wire.Ended | str = refused
        else:
            asked = Asked(step=step, param_version=param_version, forced=forced, late=late)
            answer = ask(asked, control=self._control, profilers=self._profilers, place=self._place())
        if isinstance(answer, Granted):
            return answer
        if isinstance(answer, wire.Ended):
            self._tell(answer)
        else:
            self._outcome = {"state": State.DENIED, "reason": str(answer), "window": ""}
        return None

    def _place(self) -> Place:
        return Place(rank=self._rank, world_size=self._world_size, other_thread=self.other_thread)

    def _settle_leftover(self) -> None:
        """
        A window whose boundary came on another thread ends here, if this is the thread that may end it.
        """
        window = self._window
        if window is None or not window.armed.thread_bound:
            return
        if window.mine:
            self._stop_here(window)
        elif not window.opener.is_alive():
            self._forsake(window, Reason.WRONG_THREAD, "the thread that opened the window ended without closing it")

    def _busy(self) -> str:
        if self._window is not None or not self._idle.is_set():
            return Reason.BUSY_PROCESS
        profiler = self._profilers.find(self._tool)
        return Reason.FOREIGN_PROFILER if profiler is not None and is_sync(profiler) and profiler.foreign() else ""

    def _begin(
        self, granted: Granted, armed: Armed | wire.Ended, loop: asyncio.AbstractEventLoop | None = None
    ) -> bool:
        if isinstance(armed, wire.Ended):
            self._tell(armed)
            return False
        profiler, marker = granted.profiler, None
        if is_sync(profiler) and armed.marks:
            marker = Marker(enter=profiler.enter, exit=profiler.exit)
        bridge = Bridge(
            marker=marker,
            thread=None if armed.all_threads else threading.get_native_id(),
            live=alive(self.live_spans),
            clock=self._clock,
        )
        window = Opened(
            grant=granted.grant,
            profiler=profiler,
            request=granted.request,
            armed=armed,
            bridge=bridge,
            watch=Watch(granted.grant.caps, marks=lambda: bridge.marks, clock=self._monotonic),
            step=granted.asked.step,
            param_version=granted.asked.param_version,
            stall=granted.stall,
            incomplete=Incomplete.OPENED_LATE if granted.asked.late else "",
            opened_unix_ns=self._clock(),
            loop=loop,
        )
        with self._lock:
            if self._early_stop and self._early_stop[0] == granted.grant.window:
                window.pending = (self._early_stop[1], Incomplete.STOPPED)
            self._window = window
            self.recording = True
        self._outcome = {"state": State.RECORDING, "reason": "", "window": granted.grant.window}
        return True

    # Closing ---------------------------------------------------------------------------------------------------

    def _take(self, *, version: int, reason: str, incomplete: str, boundary: bool = False) -> Opened | None:
        """
        Claim the window for closing: whoever gets it closes it, everybody else finds nothing open.
        """
        with self._lock:
            window = self._window
            if window is None:
                return None
            if window.armed.thread_bound and not window.mine:
                if boundary:
                    self._leave_to_opener(window, version)
                return None
            if window.pending:
                # What was meant to stop it earlier says why, wherever it is carried out.
                reason, incomplete = window.pending
            self._window, self._closing = None, window
            self.recording = False
            self._idle.clear()
        window.version = version if window.version is None else window.version
        window.reason, window.incomplete = reason, window.incomplete or incomplete
        return window

    def _leave_to_opener(self, window: Opened, version: int) -> None:
        self.other_thread = True
        if window.version is None:
            window.version = version
            window.pending = window.pending or (Reason.WRONG_THREAD, Incomplete.CLOSED_LATE)
        complaints.warn(
            "wrong thread",
            "the boundary of step %s came on another thread than its opening: the window ends at the next span of the "
            "thread that opened it, and later windows use level ops",
            window.step,
        )

    def _finish(self, window: Opened) -> None:
        try:
            self._tell(recorder.stop(window, clock_ns=self._clock()))
        except Exception as error:  # noqa: BLE001 - training goes on
            complaints.fault("closing a window", error)
        finally:
            self._finished()

    def _finished(self) -> None:
        self._closing = None
        self._idle.set()

    def _forsake(self, window: Opened, reason: str, why: str) -> None:
        with self._lock:
            if self._window is not window:
                return
            self._window, self.recording = None, False
        self._tell(recorder.forsake(window, reason, why))

    def _tell(self, message: wire.Closed | wire.Ended) -> None:
        self._control.tell(message)
        state = State.FINALISING if isinstance(message, wire.Closed) else State.FAILED
        self._outcome = {"state": state, "reason": str(message.reason), "window": message.window}
