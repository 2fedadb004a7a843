"""
The span as a user holds it: a context manager, or begun and ended by hand.

An exception inside is recorded and goes on; an exception of ours never leaves here.
"""

from collections.abc import Sequence
from contextvars import Token
from types import TracebackType

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext
from opentelemetry.util.types import AttributeValue

from stepscope import propagation
from stepscope.complaints import complaints
from stepscope.place import Place
from stepscope.spans import PLACE, Spans, record_error


class Span:
    """
    A span of one process. Begin and end it where you like; ``with`` makes it the parent of spans begun inside.
    """

    __slots__ = ("_attributes", "_links", "_name", "_otel", "_place", "_request", "_spans", "_token")

    def __init__(
        self,
        spans: Spans,
        name: str,
        attributes: dict[str, AttributeValue] | None,
        links: Sequence[Link | None],
        place: Place | None,
        request: bool,
    ) -> None:
        self._spans = spans
        self._name = name
        self._attributes = attributes
        self._links = links
        self._place = place
        self._request = request
        self._otel: trace.Span = trace.INVALID_SPAN
        self._token: Token[Context] | None = None

    def begin(self) -> "Span":
        """
        Begin the span now; whoever does has to :meth:`end` it.
        """
        try:
            self._begin(otel_context.get_current())
        except Exception as error:  # noqa: BLE001 - must not reach the training loop
            complaints.fault("span", error)
        return self

    def _begin(self, context: Context) -> None:
        self._otel = self._spans.begin(
            self._name,
            attributes=self._attributes,
            links=self._links,
            place=self._place,
            request=self._request,
            context=context,
        )

    def end(self) -> None:
        """
        End the span; once is enough.
        """
        otel = self._otel
        if otel.is_recording():
            if getattr(otel, "dropped_attributes", 0):
                # More attributes than the limit evict the oldest, and the oldest are those that say the step.
                otel.set_attributes((self._place or self._spans.place).tags)
            otel.end()

    def __enter__(self) -> "Span":
        """
        Begin it, if it has not begun, and make it the current span.
        """
        try:
            context = otel_context.get_current()
            if self._otel is trace.INVALID_SPAN:
                self._begin(context)
            context = trace.set_span_in_context(self._otel, context)
            if self._place is not None:
                context = otel_context.set_value(PLACE, self._place, context)
            self._token = otel_context.attach(context)
        except Exception as error:  # noqa: BLE001 - must not reach the training loop
            complaints.fault("span", error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """
        End it; an exception is recorded and goes on.
        """
        try:
            if self._token is not None:
                propagation.leave(self._token)
                self._token = None
            # KeyboardInterrupt, GeneratorExit and a cancelled task are no errors of the work itself.
            if error is not None and isinstance(error, Exception) and self._otel.is_recording():
                record_error(self._otel, error)
            self.end()
        except Exception as fault:  # noqa: BLE001 - must not reach the training loop
            complaints.fault("span", fault)

    def set(self, key: str, value: AttributeValue) -> None:
        """
        Set an attribute.
        """
        try:
            if self._otel.is_recording():
                self._otel.set_attribute(key, value)
        except Exception as error:  # noqa: BLE001 - must not reach the training loop
            complaints.fault("attribute", error)

    @property
    def context(self) -> SpanContext:
        """
        Its ids; invalid before it has begun.
        """
        return self._otel.get_span_context()

    def carrier(self) -> dict[str, str]:
        """
        What a payload takes along, so that work elsewhere can point at this span.
        """
        return propagation.carrier(self.context)
