"""
Finished spans as they are handed on: with the version they ended under, and at the times of their marks.

Pure. Leaves to :mod:`stepscope.bridge` when a mark began and ended.
"""

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.util.types import Attributes

from stepscope import names

SAME_NS = 1_000_000
"""A span's time was the clock's when less than this has passed since; an earlier one was given by the program."""

PARAM_VERSION = str(names.PARAM_VERSION)
PARAM_VERSION_END = str(names.PARAM_VERSION_END)


class Finished(ReadableSpan):
    """
    ``span`` with other times and attributes; what its limits have dropped is still known.
    """

    def __init__(self, span: ReadableSpan, *, start_ns: int | None, end_ns: int | None, attributes: Attributes) -> None:
        super().__init__(
            name=span.name,
            context=span.get_span_context(),
            parent=span.parent,
            resource=span.resource,
            attributes=attributes,
            events=span.events,
            links=span.links,
            kind=span.kind,
            status=span.status,
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=span.instrumentation_scope,
        )
        self._original = span

    @property
    def dropped_attributes(self) -> int:
        """
        Attributes beyond the limit.
        """
        return self._original.dropped_attributes

    @property
    def dropped_events(self) -> int:
        """
        Events beyond the limit.
        """
        return self._original.dropped_events

    @property
    def dropped_links(self) -> int:
        """
        Links beyond the limit.
        """
        return self._original.dropped_links


def same(time_ns: int | None, now_ns: int) -> bool:
    """
    Whether the time of a span was read off the clock just before ``now_ns``, and not given by the program.
    """
    return time_ns is not None and 0 <= now_ns - time_ns < SAME_NS


def told(span: ReadableSpan, *, start_ns: int = 0, end_ns: int = 0, version: int | None = None) -> ReadableSpan:
    """
    ``span``, from ``start_ns`` to ``end_ns`` where its mark has these times (0: it has not), ended under ``version``
    where that is another than it began under.
    """
    attributes = span.attributes or {}
    turned = version is not None and attributes.get(PARAM_VERSION) != version
    if not (turned or start_ns or end_ns):
        return span
    if version is not None and turned:
        attributes = {**attributes, PARAM_VERSION_END: version}
    return Finished(span, start_ns=start_ns or span.start_time, end_ns=end_ns or span.end_time, attributes=attributes)
