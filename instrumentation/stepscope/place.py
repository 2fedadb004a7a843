"""
Where spans go that are begun now: their tags, the parent of those without one, and the step's per-request spans.
"""

import itertools

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from opentelemetry.util.types import AttributeValue

from stepscope.tally import Tally
from stepscope.version import Moment


class Requests:
    """
    How many per-request spans a step had in this process, and how many of them were not emitted. Thread-safe.
    """

    __slots__ = ("_left_out", "_started", "step")

    def __init__(self, step: int) -> None:
        self._started = itertools.count(1)
        self._left_out = Tally()
        self.step = step

    @property
    def untraced(self) -> int:
        """
        How many were not emitted.
        """
        return int(self._left_out.sums().get("", 0))

    def within(self, budget: int) -> bool:
        """
        Count one more request; whether it is within ``budget``.
        """
        return next(self._started) <= budget

    def leave_out(self) -> None:
        """
        Count one that is not emitted.
        """
        self._left_out.add("")


class Place:
    """
    A place in the run. Never changed: a boundary puts another in its stead, so that a span reads one whole.
    """

    __slots__ = ("context", "moment", "parent", "requests", "step", "tags", "version")

    def __init__(
        self, *, moment: Moment, tags: dict[str, AttributeValue], parent: SpanContext, requests: Requests
    ) -> None:
        self.moment = moment
        self.version = moment.param_version
        self.step = moment.step
        self.tags = tags
        self.parent = parent
        self.context = trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())
        self.requests = requests
