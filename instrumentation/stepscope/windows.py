"""
The windows of this process: asks for one, starts its profiler, mirrors spans into it, and closes it exactly once.

Owns the order of what happens to a window here, and on which thread. Read :meth:`Windows.open` and
:meth:`Windows.close` first. Leaves who may record to the sidecar, how a profiler is driven to
:mod:`stepscope.profilers`, and when a step begins to its caller. Nothing here raises into training.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from stepscope import interrupts, loops, recorder, wire
from stepscope.complaints import complaints
from stepscope.grant import Asked, Control, Granted, ask
from stepscope.names import Incomplete, Reason, State
from stepscope.opened import Opened, opened
from stepscope.pace import Paces
from stepscope.profilers import Armed, Registry, is_sync
from stepscope.seam import LiveSpans
from stepscope.slot import Slot
from stepscope.watchdog import Watchdog

RESUMED = 1.0
"""Seconds after an update in which a replica that has requests begins one: without one there is nothing to wait for."""


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
        self._slot = Slot()
        self._paces = Paces()
        self._watchdog = Watchdog(self._look)
        self._dead = False
        self.live_spans = live_spans

    @property
    def recording(self) -> bool:
        """
        Whether a window records now. Read on every span.
        """
        return self._slot.window is not None

    def outcome(self) -> Mapping[str, str]:
        """
        What became of the window asked for last.
        """
        return dict(self._slot.outcome)

    def listed(self) -> list[wire.OpenWindow]:
        """
        The window that is open, to be told when registering again.
        """
        return self._slot.listed()

    # Boundary calls --------------------------------------------------------------------------------------------

    def open(
        self, *, step: int, param_version: int, forced: bool = False, late: bool = False, roaming: bool = False
    ) -> bool:
        """
        Ask for a window and start its profiler on this thread; whether it records.
        """
        try:
            with interrupts.held():
                granted = self._ask(Asked(step, param_version, forced, late, roaming))
                if granted is not None:
                    return self._begin(granted, recorder.start(granted.profiler, granted.request, granted.stall))
        except Exception as error:  # noqa: BLE001 - training goes on unrecorded
            complaints.fault("opening a window", error)
        return False

    async def aopen(
        self, *, step: int, param_version: int, forced: bool = False, late: bool = False, roaming: bool = False
    ) -> bool:
        """
        The same for a profiler whose start is a coroutine; any other is started on this thread.
        """
        try:
            with interrupts.held():
                granted = self._ask(Asked(step, param_version, forced, late, roaming))
                if granted is None:
                    return False
                if is_sync(granted.profiler):
                    return self._begin(granted, recorder.start(granted.profiler, granted.request, granted.stall))
            try:
                with self._slot.starting():
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
            window = self._slot.announce(trace_id=trace_id, span_id=span_id)
            if window is None:
                return
            window.metadata = {**self._control.metadata(), **window.describe()}
            if is_sync(window.profiler):
                window.profiler.describe(window.metadata)
            self._control.tell(window.started())
        except Exception as error:  # noqa: BLE001 - the recording is worth keeping without its labels
            complaints.fault("labelling a window", error)
        self._watchdog.wake()

    def close(self, *, version: int, reason: str = Reason.BOUNDARY, incomplete: str = "") -> None:
        """
        Stop what records, if anything does. On a thread that must not stop it: leave that to the one that may. What
        only an event loop may stop is stopped there, and waited for unless this is the loop's own thread.
        """
        with interrupts.held():
            window = self._slot.take(version=version, reason=reason, incomplete=incomplete, boundary=True)
            if window is not None:
                self._finish(window)

    async def aclose(self, *, version: int, reason: str = Reason.BOUNDARY, incomplete: str = "") -> None:
        """
        The same for a profiler whose stop is a coroutine.
        """
        with interrupts.held():
            window = self._slot.take(version=version, reason=reason, incomplete=incomplete, boundary=True)
            if window is not None and is_sync(window.profiler):
                self._finish(window)
                return
        if window is not None:
            loop = window.engine_loop or asyncio.get_running_loop()
            await loops.within(self._afinish(window), loop, timeout=recorder.LOOP_DEADLINE)

    def carries(self, step: int) -> bool:
        """
        Whether the window that records may go on into ``step``.
        """
        window = self._slot.window
        return window is not None and window.carries(step)

    def extend(self, *, step: int, trace_id: str, span_id: str) -> None:
        """
        It has gone on into ``step``, whose process's span has begun.
        """
        window = self._slot.window
        if window is None or step <= (window.last_step or window.step):
            return
        window.last_step = step
        window.metadata = {**window.metadata, "stepscope.last_step": str(step)}
        self._control.tell(wire.Continued(window=window.grant.window, step=step, trace_id=trace_id, span_id=span_id))

    def linger(self, *, version: int, incomplete: str = "") -> bool:
        """
        The step is over, and its profiler is to run on past the update; whether it does. What it mirrors ends here.
        """
        window = self._slot.hold(version=version, incomplete=incomplete)
        if window is None:
            return False
        try:
            window.bridge.finish()
        except Exception as error:  # noqa: BLE001 - the update goes on
            complaints.fault("ending marks", error)
        return True

    @property
    def lingering(self) -> bool:
        """
        Whether a profiler runs whose step is over.
        """
        window = self._slot.window
        return window is not None and window.held

    def resume(self) -> None:
        """
        Work is about to go on: stop what lingers at the first span from now on, or in a moment where none comes.
        """
        window = self._slot.window
        if window is not None and window.held:
            window.resume_by = self._monotonic() + RESUMED
            self._watchdog.wake()

    def end(self, *, version: int, timeout: float) -> None:
        """
        The process leaves: close what is open, wait for what is closing, take no more.
        """
        self._dead = True
        window = self._slot.window
        if window is not None and not window.yields_here:
            self._forsake(window, Reason.WRONG_THREAD, "the thread that opened the window was not there at exit")
        else:
            self.close(version=version, reason=Reason.PROCESS_EXIT, incomplete=Incomplete.PROCESS_EXIT)
        self._slot.wait(timeout)
        self._watchdog.close(timeout)

    def forget(self) -> None:
        """
        Go inert in a forked child: profiler, locks and threads belong to its parent.
        """
        self._dead = True
        self._slot.forget()

    # Spans -----------------------------------------------------------------------------------------------------

    def span_started(self, span_id: int, name: str) -> int:
        """
        A span has begun on this thread.
        """
        window = self._slot.window
        if window is None:
            return 0
        if window.pending and window.resume_by is not None:
            window.held = False
        # Nothing is stopped here unless it is pending.
        return 0 if self._stop_here(window) else window.bridge.started(span_id, name)

    def span_ended(self, span_id: int) -> int:
        """
        A span has ended on this thread.
        """
        window = self._slot.window
        if window is None:
            return 0
        moment = window.bridge.ended(span_id)
        self._stop_here(window)
        return moment

    # From other threads ----------------------------------------------------------------------------------------

    def stop(self, window_id: str, reason: str) -> None:
        """
        The sidecar says stop. Acted on at once, or at the owning thread's next span where nobody else may.
        """
        self._slot.stop(window_id, reason)
        if self._slot.window is not None:
            self._watchdog.wake()

    def _look(self) -> float | None:
        """
        On the watchdog's thread: close what is due, and say how long to wait.
        """
        window = self._slot.window
        if window is None:
            return None
        if not window.due(self._monotonic()):
            return window.pause(self._monotonic())
        if not window.announced:
            # Until its span has begun nobody could find the recording; that is a matter of microseconds.
            return 0.01
        if not window.armed.thread_bound:
            self._end_pending(window)
        return None

    def _stop_here(self, window: Opened) -> bool:
        if window.pending is None or window.held or not window.announced or not window.yields_here:
            return False
        if window.engine_loop is not None:
            # Its stop takes a while: the watchdog waits for it, not a span.
            self._watchdog.wake()
            return False
        self._end_pending(window)
        return True

    def _end_pending(self, window: Opened) -> None:
        version = window.param_version if window.version is None else window.version
        with interrupts.held():
            # Reason and flaw are those that are pending.
            if (taken := self._slot.take(version=version, reason="", incomplete="")) is not None:
                self._finish(taken)

    # Opening ---------------------------------------------------------------------------------------------------

    def _ask(self, asked: Asked) -> Granted | None:
        if self._dead:
            return None
        self._settle_leftover()
        self._slot.expect()
        refused = self._busy()
        if refused:
            self._control.miss(step=asked.step, param_version=asked.param_version, reason=refused)
            answer: Granted | wire.Ended | str = refused
        else:
            answer = ask(
                replace(asked, roaming=asked.roaming or self._slot.roaming),
                control=self._control,
                profilers=self._profilers,
                rank=self._rank,
                world_size=self._world_size,
            )
        if isinstance(answer, Granted):
            return answer
        if isinstance(answer, wire.Ended):
            self._tell(answer)
        else:
            self._slot.settle(State.DENIED, str(answer), "")
        return None

    def _settle_leftover(self) -> None:
        """
        A window whose boundary came on another thread ends here, if this is the thread that may end it.
        """
        window = self._slot.window
        if window is None or not window.armed.thread_bound:
            return
        if window.mine:
            window.held = False
            self._stop_here(window)
        elif not window.opener.is_alive():
            self._forsake(window, Reason.WRONG_THREAD, "the thread that opened the window ended without closing it")

    def _busy(self) -> str:
        if self._slot.busy:
            return Reason.BUSY_PROCESS
        profiler = self._profilers.find(self._tool)
        if getattr(profiler, "inherited", False):
            return Reason.FORKED_CHILD
        return Reason.FOREIGN_PROFILER if profiler is not None and is_sync(profiler) and profiler.foreign() else ""

    def _begin(
        self, granted: Granted, armed: Armed | wire.Ended, loop: asyncio.AbstractEventLoop | None = None
    ) -> bool:
        if isinstance(armed, wire.Ended):
            self._tell(armed)
            return False
        window = opened(
            granted,
            armed,
            live_spans=self.live_spans,
            paces=self._paces,
            clock=self._clock,
            monotonic=self._monotonic,
            loop=loop,
        )
        self._slot.put(window)
        return True

    # Closing ---------------------------------------------------------------------------------------------------

    def _finish(self, window: Opened) -> None:
        loop = window.engine_loop
        if loop is not None and loops.see_through(self._afinish(window), loop, timeout=recorder.LOOP_DEADLINE):
            return
        try:
            self._closed(window, recorder.stop(window))
        except Exception as error:  # noqa: BLE001 - training goes on, and the sidecar is not left with an open window
            self._tell(recorder.failed(window, Reason.STOP_ERROR, recorder.detail(error)))
            complaints.fault("closing a window", error)
        finally:
            self._slot.closed()

    async def _afinish(self, window: Opened) -> None:
        try:
            self._closed(window, await recorder.astop(window))
        except Exception as error:  # noqa: BLE001 - training goes on, and the sidecar is not left with an open window
            self._tell(recorder.failed(window, Reason.STOP_ERROR, recorder.detail(error)))
            complaints.fault("closing a window", error)
        except BaseException:
            self._tell(recorder.failed(window, Reason.STOP_ERROR, recorder.CANCELLED))
            raise
        finally:
            self._slot.closed()

    def _closed(self, window: Opened, message: wire.Closed | wire.Ended) -> None:
        if isinstance(message, wire.Closed) and not window.lingered:
            # Before the sidecar is told: it takes away what it finds.
            self._paces.note(window.grant.tool, message, recorder.size(window, message), marks=window.armed.marks)
        self._tell(message)

    def _forsake(self, window: Opened, reason: str, why: str) -> None:
        if self._slot.drop(window):
            self._tell(recorder.forsake(window, reason, why))

    def _tell(self, message: wire.Closed | wire.Ended) -> None:
        self._control.tell(message)
        state = State.FINALISING if isinstance(message, wire.Closed) else message.state
        self._slot.settle(state, str(message.reason), message.window)
