"""
Spans that know their step: what a span is tagged with, whose child it is, and which per-request spans are emitted.

Owns the place of a span in the run. Leaves ids, limits and what happens at start and end to
:mod:`stepscope.provider`, and when the step changes to :mod:`stepscope.boundary`.
"""

import os
from collections.abc import Sequence
from typing import Protocol

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.trace import Link, SpanContext, SpanKind
from opentelemetry.util.types import Attributes, AttributeValue

from stepscope import ids, names, propagation, provider
from stepscope.failures import record_error as record_error
from stepscope.news import News
from stepscope.place import Place, Requests
from stepscope.seam import Change, Identity, LiveSpan, WindowsSeam
from stepscope.settings import Settings
from stepscope.version import Moment

SCOPE = "stepscope"
"""Name of the instrumentation scope of every span of ours."""

OUTSIDE = frozenset({str(names.VALIDATE), str(names.CHECKPOINT_SAVE)})
"""Spans that must not lie in a window."""

PARAM_VERSION = str(names.PARAM_VERSION)
STEP = str(names.STEP)
BUCKET = str(names.BUCKET)
WAIT_FOR = str(names.WAIT_FOR)

PLACE = otel_context.create_key("stepscope-place")
"""Under it a context carries the place of a span that was given its version: what is below has it too."""


class Selected(Protocol):
    """
    Whether a step is selected.
    """

    def __call__(self, step: int) -> bool:
        """
        Answers from a local copy.
        """


class Untraced(trace.NonRecordingSpan):
    """
    Stands for a per-request span that is not emitted; neither are the spans below it.
    """


class Spans:
    """
    Begins all spans of this process. Thread-safe; ``place`` is replaced whole at a boundary.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        identity: Identity,
        moment: Moment,
        windows: WindowsSeam,
        selected: Selected,
        sink: provider.Sink,
    ) -> None:
        self._attempt = settings.attempt
        self._budget = settings.request_spans
        self._identity = identity
        self._selected = selected
        self._ids = provider.Ids()
        self._live = provider.Live(sink=sink, windows=windows, version=moment.param_version)
        self._resource = provider.resource(settings, identity)
        self._tracer = provider.make(live=self._live, ids_=self._ids, resource=self._resource).get_tracer(SCOPE)
        self._ratio = provider.request_ratio(os.environ)
        self._requests = Requests(moment.step)
        self._news = News()
        self.windows = windows
        self.flaw = ""
        """Why what records now will not hold the whole of its step, as far as spans tell."""
        self.worked = 0
        """The latest step that a span was begun in."""
        self.place = self.place_between(moment)

    def tags(self, moment: Moment) -> dict[str, AttributeValue]:
        """
        What every span of ``moment`` carries.
        """
        tags: dict[str, AttributeValue] = {
            PARAM_VERSION: moment.param_version,
            STEP: moment.step,
            str(names.ROLE): self._identity.role,
            str(names.RANK): self._identity.rank,
        }
        if moment.partial:
            tags[str(names.PARTIAL)] = True
        return tags

    def root(self, step: int) -> SpanContext:
        """
        The context of the root span of ``step``, whoever emits it.
        """
        return SpanContext(
            trace_id=ids.trace_id(self._attempt, step),
            span_id=ids.root_span_id(self._attempt, step),
            is_remote=True,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        )

    def sample(self, step: int, name: str) -> SpanContext:
        """
        The context of the span of sample ``name`` that began in ``step``, known without having been told.
        """
        root = self.root(step)
        return SpanContext(root.trace_id, ids.sample_span_id(self._attempt, name), True, root.trace_flags)

    def call_next(self, context: SpanContext) -> None:
        """
        The next span that this thread begins in that trace has the id of ``context``.
        """
        self._ids.force(trace_id=context.trace_id, span_id=context.span_id)

    def place_between(self, moment: Moment) -> Place:
        """
        The place of spans begun outside the process's step: below the derived root.
        """
        return self._place(moment, self.root(moment.step))

    def move(self, moment: Moment) -> None:
        """
        The process is at ``moment``, outside its step.
        """
        self.place = self.place_between(moment)
        self._live.version = moment.param_version

    def begin_process(self, moment: Moment) -> trace.Span:
        """
        Begin this process's part of the step; spans without a parent are its children from now on.
        """
        outside = self.place_between(moment)
        span = self._tracer.start_span(names.RL_STEP_PROCESS, outside.context, attributes=outside.tags)
        self.worked = max(self.worked, moment.step)
        self._news.begin(span)
        context = span.get_span_context()
        self.place = self._place(moment, context if context.is_valid else outside.parent)
        return span

    def end_process(self, span: trace.Span, *, partial: bool = False, error: BaseException | None = None) -> None:
        """
        End what :meth:`begin_process` began; spans without a parent are children of the root again.
        """
        place = self.place
        self._news.end()
        if place.requests.untraced:
            span.set_attribute(names.REQUESTS_UNTRACED, place.requests.untraced)
        if partial:
            span.set_attribute(names.PARTIAL, True)
        if error is not None:
            record_error(span, error)
        span.end()
        self.place = self.place_between(place.moment)

    def news(self, change: Change) -> None:
        """
        The selection has changed: the process's span says so, this step's or the next one's. From any thread.
        """
        self._news.tell(change)

    def emit_root(self, moment: Moment, *, start_ns: int, end_ns: int, partial: bool = False) -> None:
        """
        Emit the root span of the step of ``moment``, which everybody's spans of that step already point at.
        """
        root = self.root(moment.step)
        self._ids.force(trace_id=root.trace_id, span_id=root.span_id)
        tags = {**self.tags(moment), **({str(names.PARTIAL): True} if partial else {})}
        self._tracer.start_span(names.RL_STEP, Context(), attributes=tags, start_time=start_ns).end(end_ns)

    def begin(
        self,
        name: str,
        *,
        attributes: Attributes = None,
        links: Sequence[Link | None] = (),
        place: Place | None = None,
        request: bool = False,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        start_time: int | None = None,
    ) -> trace.Span:
        """
        Begin a span: below the current span of ours, else below the process's step, else (``place``) below that root.
        """
        within: Context | None
        # Not None, and nothing else that only the export would stumble over.
        pointed = [link for link in links if isinstance(link, Link)] if links else ()
        if context is None:
            context = otel_context.get_current()
        current = trace.get_current_span(context)
        if place is not None:
            within = place.context
        else:
            place = self.placed(context)
            if current is trace.INVALID_SPAN:
                within = place.context
            elif isinstance(current, Untraced):
                return current
            else:
                within = context if self._is_parent(current, place) else place.context
        if self.windows.recording and name in OUTSIDE:
            self.flaw = self.flaw or names.Incomplete.VALIDATION_INSIDE
        if self.worked < place.step:
            self.worked = place.step
        if request and (span := self._beyond_budget(name, place, attributes, pointed, kind, start_time)):
            return span
        return self._tracer.start_span(
            name,
            within,
            kind,
            {**place.tags, **attributes} if attributes else place.tags,
            pointed,
            start_time,
        )

    def placed(self, context: Context | None = None) -> Place:
        """
        The place of what is begun in ``context``: the process's, unless work there was given a later version.
        """
        told = otel_context.get_value(PLACE, context)
        return told if isinstance(told, Place) and told.version > self.place.version else self.place

    def current(self) -> SpanContext:
        """
        What work elsewhere can point at: the current span of ours, else this process's part of the step.
        """
        current = trace.get_current_span()
        if isinstance(current, Untraced) or self._is_parent(current, self.place):
            return current.get_span_context()
        return self.place.parent

    def live(self) -> list[LiveSpan]:
        """
        The spans that are open now.
        """
        return self._live.spans()

    def silence(self) -> None:
        """
        Emit nothing more: the process was forked, or the session is over.
        """
        self._live.alive = False

    def _place(self, moment: Moment, parent: SpanContext) -> Place:
        if self._requests.step != moment.step:
            self._requests = Requests(moment.step)
        return Place(moment=moment, tags=self.tags(moment), parent=parent, requests=self._requests)

    def _is_parent(self, current: trace.Span, place: Place) -> bool:
        if isinstance(current, SdkSpan):
            if current.resource is not self._resource:
                return False
            # A task that was started in a span of an earlier step keeps that span as its context for ever.
            return current.is_recording() or (current.attributes or {}).get(STEP) == place.step
        return isinstance(current, propagation.Attached)

    def _beyond_budget(
        self,
        name: str,
        place: Place,
        attributes: Attributes,
        links: Sequence[Link],
        kind: SpanKind,
        start_time: int | None,
    ) -> trace.Span | None:
        if self._ratio < 1.0 and self._ids.chance() >= self._ratio:
            return self._untraced(place)
        if place.requests.within(self._budget):
            return None
        if not self._selected(place.step):
            place.requests.leave_out()
            return self._untraced(place)
        # Numbered at random: the requests of all processes of the step share the head of the trace id.
        number = self._ids.generate_span_id()
        self._ids.force(trace_id=ids.request_trace_id(self._attempt, place.step, number))
        return self._tracer.start_span(
            name, Context(), kind, {**place.tags, **(attributes or {})}, [Link(place.parent), *links], start_time
        )

    def _untraced(self, place: Place) -> Untraced:
        return Untraced(
            SpanContext(trace_id=place.parent.trace_id, span_id=self._ids.generate_span_id(), is_remote=False)
        )
