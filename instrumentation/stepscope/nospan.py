"""
What stands for a span while stepscope is off. Imports nothing but the OpenTelemetry API.
"""

from types import TracebackType

from opentelemetry import trace
from opentelemetry.trace import SpanContext
from opentelemetry.util.types import AttributeValue


class NoSpan:
    """
    Stands for a span while stepscope is off.
    """

    __slots__ = ()

    def begin(self) -> "NoSpan":
        """
        Nothing.
        """
        return self

    def end(self) -> None:
        """
        Nothing.
        """

    def __enter__(self) -> "NoSpan":
        """
        Nothing.
        """
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """
        Nothing.
        """

    def set(self, key: str, value: AttributeValue) -> None:
        """
        Nothing.
        """

    @property
    def context(self) -> SpanContext:
        """
        No ids.
        """
        return trace.INVALID_SPAN_CONTEXT

    def carrier(self) -> dict[str, str]:
        """
        Nothing to take along.
        """
        return {}
