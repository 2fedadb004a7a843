"""
Changes of the selection, as events of the process's span in whose time they came.

Owns the way from the thread that hears of one to the span. Without a span, between two steps, the next one gets it.
"""

import threading
from collections import deque

from opentelemetry import trace

from stepscope import names
from stepscope.seam import Change

MAX_WAITING = 100
"""Changes that wait for a span: people and files make a few a run."""

MAX_TEXT = 1000
"""Characters of a selection's text in an event."""


class News:
    """
    The events that are due, and the span that is there to take them. Callable from any thread.
    """

    def __init__(self) -> None:
        # A handler of a signal may make a boundary call of its own.
        self._lock = threading.RLock()
        self._span: trace.Span | None = None
        self._waiting: deque[Change] = deque(maxlen=MAX_WAITING)

    def begin(self, span: trace.Span) -> None:
        """
        The process's span has begun: it takes what has waited.
        """
        with self._lock:
            self._span = span
            self._hand_over()

    def end(self) -> None:
        """
        It is about to end.
        """
        with self._lock:
            self._span = None

    def tell(self, change: Change) -> None:
        """
        The selection has changed just now.
        """
        with self._lock:
            self._waiting.append(change)
            self._hand_over()

    def _hand_over(self) -> None:
        while self._span is not None and self._waiting:
            change = self._waiting.popleft()
            attributes: dict[str, str | int | bool] = {
                names.SELECTION_STEPS: change.steps[:MAX_TEXT],
                names.SELECTION_REVISION: change.revision,
                names.SELECTION_STOPPED: change.stopped,
            }
            if change.source:
                attributes[names.SELECTION_SOURCE] = change.source
            self._span.add_event(names.SELECTION_CHANGED, attributes)
