"""
An OpenTelemetry tracer whose spans know their step, for code that is written against the OpenTelemetry API.

May be taken before ``init()`` and kept: it looks for the session each time, and without one its spans do nothing.
"""

# ruff: noqa: ARG002 - the OpenTelemetry API names the parameters

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind
from opentelemetry.util._decorator import _agnosticcontextmanager
from opentelemetry.util.types import Attributes

from stepscope import propagation, registration
from stepscope.complaints import complaints


class StepTracer(trace.Tracer):
    """
    Begins spans of the private provider, tagged and parented as those of :func:`stepscope.span`.
    """

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = (),
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        """
        Begin a span.
        """
        session = registration.session
        if session is None:
            return trace.INVALID_SPAN
        try:
            return session.spans.begin(
                str(name), attributes=attributes, links=links or (), context=context, kind=kind, start_time=start_time
            )
        except Exception as error:  # noqa: BLE001 - must not reach the training loop
            complaints.fault("tracer", error)
            return trace.INVALID_SPAN

    @_agnosticcontextmanager
    def start_as_current_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = (),
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> Iterator[trace.Span]:
        """
        Begin a span and make it the current one.
        """
        span = self.start_span(name, context, kind, attributes, links, start_time)
        token = otel_context.attach(trace.set_span_in_context(span))
        try:
            yield span
        except Exception as error:
            _record(span, error, record_exception=record_exception, set_status=set_status_on_exception)
            raise
        finally:
            propagation.leave(token)
            if end_on_exit:
                span.end()


def _record(span: trace.Span, error: Exception, *, record_exception: bool, set_status: bool) -> None:
    if span.is_recording():
        from stepscope.spans import record_error

        record_error(span, error, event=record_exception, status=set_status)
