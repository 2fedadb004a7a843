"""
What a boundary call does: which spans begin and end, and when the window opens and closes. The order is the contract.

Opening: the profiler is started, *then* ``rl.step.process`` begins, so the window holds the whole span and the
span's time holds none of the start. Closing is the mirror image. Decisions are :mod:`stepscope.version`'s; windows are
reached through :mod:`stepscope.flow`.
"""

import time
from collections.abc import Callable

from opentelemetry import trace

from stepscope.complaints import complaints
from stepscope.flow import Closing, Flow, Opening
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
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._records = not identity.register_only
        self._emits_root = self._records and identity.role == "trainer" and identity.rank == 0
        self._state = state
        self._spans = spans
        self._agent = agent
        self._clock = clock
        self._since_ns = clock()
        self._process: trace.Span | None = None
        self._late = False
        self._closed_step = 0

    def enter(self, profile: bool | None) -> Flow:
        """
        The process enters its step: the window if one is due, then the span.
        """
        moment = self._state.now
        self._agent.entered(moment.step, moment.param_version)
        forced = profile is True
        wanted = self._records and profile is not False and (forced or self._agent.selected(moment.step))
        due = wanted and self._state.claim_window()
        recording = False
        if due:
            self._spans.flaw = ""
            self._late = False
            try:
                recording = yield Opening(step=moment.step, param_version=moment.param_version, forced=forced)
            except BaseException:
                # The block is not entered, so nobody would close what may have been opened.
                yield Closing(
                    version=moment.param_version, reason=Reason.EXCEPTION, incomplete=Incomplete.NOT_PUBLISHED
                )
                raise
        self._process = self._spans.begin_process(moment)
        self._state.enter()
        if recording:
            self._tell_started(self._process.get_span_context())

    def published(self, version: int) -> Flow:
        """
        The update that ends the trainer's step is complete.
        """
        verdict, told = self._state.judge(version)
        if verdict is Verdict.UNUSABLE or verdict is Verdict.REPEAT:
            self._complain(verdict, "weights_published", version)
            return
        if verdict is Verdict.JUMP:
            self._complain(verdict, "weights_published", version)
        try:
            yield from self._complete("", makes=told)
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

    def loading(self) -> Flow:
        """
        A replica stands still, before its weights change.
        """
        if self._process is not None:
            yield from self._complete("")

    def loaded(self, version: int) -> Flow:
        """
        A replica has the weights ``version`` and is about to go on.
        """
        verdict, told = self._state.judge(version)
        if verdict is Verdict.UNUSABLE:
            self._complain(verdict, "weights_loaded", version)
            return
        if self._process is not None:
            if verdict is Verdict.REPEAT:
                return
            complaints.warn(
                "no weights_loading", "weights_loaded(%s) without weights_loading(): the window ends late", version
            )
            yield from self._complete(Incomplete.NOT_PUBLISHED)
        if verdict is not Verdict.REPEAT:
            self._advance(told)
        yield from self.enter(None)

    def start_profiling(self) -> Flow:
        """
        A window for the step in force, from now on.
        """
        if self._spans.windows.recording:
            return
        moment = self._state.now
        if not self._records or not self._state.claim_window():
            return
        self._late = self._process is not None
        recording = yield Opening(step=moment.step, param_version=moment.param_version, forced=True, late=self._late)
        if recording:
            self._tell_started(
                self._process.get_span_context() if self._process is not None else self._spans.root(moment.step)
            )

    def stop_profiling(self) -> Flow:
        """
        End the window, before its boundary.
        """
        if self._spans.windows.recording:
            late = Incomplete.OPENED_LATE if self._late else Incomplete.STOPPED
            yield self._closing(reason=Reason.STOPPED_BY_USER, incomplete=late)

    def exit(self, *, reason: Reason) -> Flow:
        """
        The process leaves the run, or takes another role: end what is open, and emit the root of a partial step.
        """
        moment = self._state.now
        partial = self._spans.worked >= moment.step > self._closed_step
        unknown_end = self._state.total_steps is None
        incomplete = Incomplete.PARTIAL_STEP if unknown_end or moment.partial else Incomplete.PROCESS_EXIT
        yield from self._stop(reason=reason, incomplete=incomplete, error=None, partial=True)
        if partial:
            if self._emits_root:
                self._spans.emit_root(moment, start_ns=self._since_ns, end_ns=self._clock(), partial=True)
            self._agent.step_closed(moment.step, partial=True)

    def _complete(self, incomplete: str, *, makes: int | None = None) -> Flow:
        moment = self._state.now
        self._end_process(error=None)
        try:
            yield self._closing(reason=Reason.BOUNDARY, incomplete=incomplete)
        finally:
            self._closed_step = moment.step
            self._agent.step_closed(moment.step, partial=moment.partial, version=makes)

    def _stop(self, *, reason: str, incomplete: str, error: BaseException | None, partial: bool = False) -> Flow:
        self._end_process(error=error, partial=partial)
        yield self._closing(reason=reason, incomplete=incomplete)

    def _end_process(self, *, error: BaseException | None, partial: bool = False) -> None:
        process, self._process = self._process, None
        self._state.leave()
        if process is not None:
            self._spans.end_process(process, partial=partial, error=error)

    def _closing(self, *, reason: str, incomplete: str) -> Closing:
        flaw = self._spans.flaw or (Incomplete.OPENED_LATE if self._late else "")
        self._spans.flaw, self._late = "", False
        return Closing(version=self._state.now.param_version, reason=reason, incomplete=incomplete or flaw)

    def _advance(self, version: int) -> None:
        moment, now = self._state.now, self._clock()
        if self._emits_root:
            self._spans.emit_root(moment, start_ns=self._since_ns, end_ns=now)
        self._since_ns = now
        self._state.advance(version)
        self._spans.move(self._state.now)

    def _tell_started(self, context: trace.SpanContext) -> None:
        self._spans.windows.started(
            trace_id=trace.format_trace_id(context.trace_id), span_id=trace.format_span_id(context.span_id)
        )

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
