"""
What a boundary call does: which spans begin and end, and when the window opens and closes. The order is the contract.

Opening: the profiler is started, *then* ``rl.step.process`` begins, so the window holds the whole span and the
span's time holds none of the start. Closing is the mirror image. Decisions are :mod:`stepscope.version`'s; windows are
reached through :mod:`stepscope.flow`, and what is known of the open one is :mod:`stepscope.ending`'s.
"""

import threading
import time
from collections.abc import Callable

from opentelemetry import trace

from stepscope.complaints import complaints
from stepscope.ending import Ending
from stepscope.flow import Flow, Opening
from stepscope.names import Incomplete, Reason
from stepscope.seam import AgentSeam, Identity
from stepscope.spans import Spans
from stepscope.version import Moment, StepState, Verdict


class Boundary:
    """
    Carries out boundary calls. They come one after another, on the thread that runs the loop.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        state: StepState,
        spans: Spans,
        agent: AgentSeam,
        stop_after: bool = False,
        completed: Callable[[Moment], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """
        With ``stop_after`` a replica's profiler stops when generation has resumed, not before the update. ``completed``
        is told of each step of the run that is.
        """
        self._records = not identity.register_only
        self._emits_root = self._records and identity.role == "trainer" and identity.rank == 0
        self._state = state
        self._spans = spans
        self._agent = agent
        self._clock = clock
        self._since_ns = clock()
        self._process: trace.Span | None = None
        self._ending = Ending(state=state, spans=spans, clock=clock, stop_after=stop_after)
        self._closed_step = 0
        self._completed = completed
        self._kept = False
        """A window was left open at the last boundary, for the step that follows."""
        self.led = False
        """Whether the process has made a boundary call of its own; until then calls may tell it its step."""
        self.refused = ""
        """Why the last call to start profiling asked for no window."""
        self._entered_step = 0
        self._opening: Opening | None = None
        """A window that was asked for by hand, while it is wanted."""

    @property
    def closed_step(self) -> int:
        """
        The step that was completed last; 0 before the first.
        """
        return self._closed_step

    @property
    def placed(self) -> bool:
        """
        Whether this process knows its place in the run, so that others can be told.
        """
        return self._records and (self.led or self._process is not None or self._closed_step > 0)

    def adopt(self) -> bool:
        """
        A process that was told its step enters it by itself; False where it did so before.
        """
        before, self.led = self.led, True
        return not before

    def enter(self, profile: bool | None, *, replica: bool = False) -> Flow:
        """
        The process enters its step: the window if one is due, then the span. A window that was kept open for it goes
        on. A ``replica`` has an update that waits for this.
        """
        self.led = self.led or not replica
        moment = self._state.now
        forced = profile is True
        wanted = self._records and profile is not False and (forced or self._agent.selected(moment.step))
        windows = self._spans.windows
        kept, self._kept = self._kept, False
        goes_on = kept and wanted and windows.carries(moment.step)
        if kept and not goes_on:
            yield self._ending.closing(reason=Reason.STEP_NOT_SELECTED, incomplete=Incomplete.CLOSED_LATE)
        due = wanted and self._state.claim_window() and not goes_on
        recording = False
        if due:
            roaming = replica and _pooled()
            opening = Opening(step=moment.step, param_version=moment.param_version, forced=forced, roaming=roaming)
            recording = yield from self._ending.opened(opening, replica=replica)
        # After the window: the process waits for that answer, and not behind this.
        self._agent.entered(moment.step, moment.param_version, self._ending.waited())
        self._entered_step = moment.step
        self._process = self._spans.begin_process(moment)
        self._state.enter()
        ids = _hex(self._process.get_span_context())
        if recording:
            windows.started(**ids)
        elif goes_on:
            windows.extend(step=moment.step, **ids)

    def published(self, version: int, *, led: bool = True) -> Flow:
        """
        The update that ends the trainer's step is complete. Not ``led``: a call says so, here and below.
        """
        self.led = self.led or led
        verdict, told = self._state.judge(version)
        if verdict is Verdict.UNUSABLE or verdict is Verdict.REPEAT:
            self._complain(verdict, "weights_published", version)
            return
        if verdict is Verdict.JUMP:
            self._complain(verdict, "weights_published", version)
        try:
            follows = self._state.moment(told) if verdict is Verdict.NEXT else None
            yield from self._complete("", makes=told, follows=follows)
        finally:
            # Also when an interrupt came while the profiler stopped: the weights are out.
            self._advance(told)

    def leave(self, error: BaseException | None) -> Flow:
        """
        The block of the step was left; its update may not have come.
        """
        if self._process is None:
            return
        yield from self._stop(
            reason=_reason(error),
            incomplete=Incomplete.NOT_PUBLISHED,
            error=error if isinstance(error, Exception) else None,
        )

    def loading(self, *, led: bool = True) -> Flow:
        """
        A replica stands still, before its weights change.
        """
        self.led = self.led or led
        if self._process is not None:
            follows = self._state.moment(self._state.now.param_version + 1)
            yield from self._complete("", follows=follows, replica=True)

    def loaded(self, version: int, *, led: bool = True, enters: bool = True) -> Flow:
        """
        A replica has the weights ``version`` and is about to go on, unless it ``enters`` no step yet.
        """
        self.led = self.led or led
        verdict, told = self._state.judge(version)
        if verdict is Verdict.UNUSABLE:
            self._complain(verdict, "weights_loaded", version)
            return
        if self._process is not None:
            if verdict is Verdict.REPEAT:
                return
            if led:
                complaints.warn(
                    "no weights_loading", "weights_loaded(%s) without weights_loading(): the window ends late", version
                )
                yield from self._complete(Incomplete.NOT_PUBLISHED, replica=True)
            else:
                yield from self._complete("", follows=self._state.moment(told) if enters else None)
        if verdict is not Verdict.REPEAT:
            windows = self._spans.windows
            if windows.recording and not self._kept and not windows.lingering:
                # Whatever opened it: it is no window of the step that begins.
                yield self._ending.closing(reason=Reason.BOUNDARY, incomplete=Incomplete.CLOSED_LATE)
            self._advance(told)
        if not enters:
            return
        if self._spans.windows.lingering and self._agent.selected(self._state.now.step):
            # Two profilers cannot run at once: the next window waits for this stop, and the update with it.
            yield from self._ending.timed(self._ending.closing(reason=Reason.BOUNDARY, incomplete=""), replica=True)
        yield from self.enter(None, replica=True)
        if self._spans.windows.lingering:
            # Not before: the process's own span would be the first.
            self._spans.windows.resume()

    def start_profiling(self) -> Flow:
        """
        A window for the step in force, from now on; none where a replica's is over and its update not through.
        """
        self.refused = ""
        idle = not self._spans.windows.recording or self._spans.windows.lingering
        if idle and self._process is None and self._closed_step >= self._state.now.step:
            self.refused = Reason.BOUNDARY
            complaints.warn(
                "start between steps",
                "start_profiling() between weights_loading() and weights_loaded(): step %d is over, no window opens",
                self._closed_step,
            )
            return
        if self._spans.windows.lingering:
            yield self._ending.closing(reason=Reason.BOUNDARY, incomplete="")
        if self._spans.windows.recording:
            return
        moment = self._state.now
        if not self._records or not self._state.claim_window():
            return
        late = self._entered_step == moment.step
        opening = Opening(
            step=moment.step, param_version=moment.param_version, forced=True, late=late, roaming=_pooled()
        )
        self._opening = opening
        recording = yield opening
        wanted, self._opening = self._opening is opening, None
        self._ending.late = self._entered_step == moment.step
        if recording and not wanted:
            # A call could not wait for its turn: the step is over, or the window was to stop. Nothing is kept of it.
            yield self._ending.closing(reason=Reason.BOUNDARY, incomplete=Incomplete.OPENED_LATE)
        elif recording:
            context = self._process.get_span_context() if self._process is not None else self._spans.root(moment.step)
            self._spans.windows.started(**_hex(context))

    def stop_profiling(self) -> Flow:
        """
        End the window, before its boundary.
        """
        self.refused, self._opening = "", None
        if self._spans.windows.recording:
            late = Incomplete.OPENED_LATE if self._ending.late else Incomplete.STOPPED
            yield self._ending.closing(reason=Reason.STOPPED_BY_USER, incomplete=late)

    def exit(self, *, reason: Reason) -> Flow:
        """
        The process leaves the run, or takes another role: end what is open, and emit the root of a partial step.
        """
        moment = self._state.now
        partial = self._spans.worked >= moment.step > self._closed_step
        unknown_end = self._state.total_steps is None
        incomplete = Incomplete.PARTIAL_STEP if unknown_end or moment.partial else Incomplete.PROCESS_EXIT
        # Nobody told it that the step is over, but calls came from a step of the run: that is no partial one.
        told = self._process is not None and not self.led
        if told:
            incomplete = Incomplete.PROCESS_EXIT
        if self._kept:
            incomplete = Incomplete.CLOSED_LATE
        yield from self._stop(reason=reason, incomplete=incomplete, error=None, partial=not told)
        if told:
            self._agent.step_closed(moment.step)
        elif partial:
            if self._emits_root:
                self._spans.emit_root(moment, start_ns=self._since_ns, end_ns=self._clock(), partial=True)
            self._agent.step_closed(moment.step, partial=True)

    def _complete(
        self, incomplete: str, *, makes: int | None = None, follows: Moment | None = None, replica: bool = False
    ) -> Flow:
        """
        The step is over, at its boundary. The window too, unless it goes on into the step that ``follows``.
        """
        moment = self._state.now
        self._end_process(error=None)
        # From here on nothing is opened for it.
        self._closed_step = moment.step
        self._kept = (
            follows is not None
            and not follows.partial
            and self._agent.selected(follows.step)
            and self._spans.windows.carries(follows.step)
        )
        try:
            if not self._kept:
                closing = self._ending.closing(reason=Reason.BOUNDARY, incomplete=incomplete)
                yield from self._ending.at_boundary(closing, replica=replica)
        finally:
            self._agent.step_closed(moment.step, partial=moment.partial, version=makes)
            if self._completed is not None and not moment.partial:
                self._completed(moment)

    def _stop(self, *, reason: str, incomplete: str, error: BaseException | None, partial: bool = False) -> Flow:
        self._end_process(error=error, partial=partial)
        yield self._ending.closing(reason=reason, incomplete=incomplete)

    def _end_process(self, *, error: BaseException | None, partial: bool = False) -> None:
        process, self._process, self._opening = self._process, None, None
        self._state.leave()
        if process is not None:
            self._spans.end_process(process, partial=partial, error=error)

    def _advance(self, version: int) -> None:
        moment, now = self._state.now, self._clock()
        self._opening = None
        if self._emits_root:
            self._spans.emit_root(moment, start_ns=self._since_ns, end_ns=now)
        self._since_ns = now
        self._state.advance(version)
        self._spans.move(self._state.now)

    def _complain(self, verdict: Verdict, call: str, version: object) -> None:
        moment: Moment = self._state.now
        if verdict is Verdict.UNUSABLE:
            complaints.warn(f"{call} unusable", "%s(%r) is no version number; it is ignored", call, version)
        elif verdict is Verdict.REPEAT:
            complaints.warn(f"{call} repeat", "%s(%s) was told before; it is ignored", call, version)
        else:
            complaints.warn(
                f"{call} jump", "%s(%s) follows version %d; it is taken as told", call, version, moment.param_version
            )


def _reason(error: BaseException | None) -> Reason:
    if error is None:
        return Reason.BOUNDARY
    return Reason.PROCESS_EXIT if isinstance(error, SystemExit) else Reason.EXCEPTION


def _hex(context: trace.SpanContext) -> dict[str, str]:
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def _pooled() -> bool:
    """
    Whether this thread was not made by Python: one of Ray's pool, where the next call may come on another.
    """
    return isinstance(threading.current_thread(), threading._DummyThread)  # noqa: SLF001 - the only sign of it
