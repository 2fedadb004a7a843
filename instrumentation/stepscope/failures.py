"""
How a span says which exception ended it. What a span holds leaves the machine, and a stack trace holds paths of it.
"""

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from stepscope.paths import without_folders

MAX_MESSAGE = 300
"""Characters of an exception's message that go into a span."""


def record_error(span: trace.Span, error: BaseException, *, event: bool = True, status: bool = True) -> None:
    """
    Say on ``span`` that ``error`` ended it: its type and the head of its message, without stack and folders.
    """
    message = without_folders(str(error))[:MAX_MESSAGE]
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if event:
        span.add_event("exception", {"exception.type": name, "exception.message": message})
    if status:
        span.set_status(Status(StatusCode.ERROR, f"{name}: {message}"))
