"""
What stepscope says when something of its own goes wrong: a bounded number of log lines, never an exception of ours.

Owns the logger ``stepscope`` and how often it speaks. Callable from any thread.
"""

import logging
import time
from collections.abc import Callable

from stepscope import interrupts

logger = logging.getLogger("stepscope")

QUIET_SECONDS = 60.0
"""Between two lines of the same kind: a fault in every span of a fast loop must not fill a disk."""


class Complaints:
    """
    A log that says each kind of thing at once, and then at most once every ``quiet`` seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, quiet: float = QUIET_SECONDS) -> None:
        self._clock = clock
        self._quiet = quiet
        self._last: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def warn(self, kind: str, message: str, *arguments: object, error: BaseException | None = None) -> None:
        """
        Log ``message`` as a warning unless this ``kind`` was logged a moment ago.
        """
        now = self._clock()
        if kind in self._last and now - self._last[kind] < self._quiet:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return
        self._last[kind] = now
        more = self._suppressed.pop(kind, 0)
        suffix = f" ({more} more of this kind since)" if more else ""
        # The traceback is for a bug report, not for a user's terminal.
        logger.warning(message + suffix, *arguments)
        if error is not None:
            logger.debug("%s: details", kind, exc_info=error)

    def fault(self, where: str, error: BaseException) -> None:
        """
        An exception of our own, caught at ``where``; the training loop goes on without what it would have done.

        One that the program's handler of a signal has raised meanwhile is none of ours, and is raised again.
        """
        if interrupts.theirs(error):
            raise error
        self.warn(
            f"fault:{where}",
            "stepscope failed in %s and goes on: %s: %s",
            where,
            type(error).__name__,
            error,
            error=error,
        )


complaints = Complaints()
"""The one that the package uses."""
