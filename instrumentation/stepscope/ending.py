"""
How a window comes to its end: with which flaw, and how long an update waited for its profiler.

Owns what is known of the window that is open until then. Leaves when it opens and ends to :mod:`stepscope.boundary`.
"""

from collections.abc import Callable, Generator

from stepscope.flow import Closing, Flow, Opening
from stepscope.names import Incomplete, Reason
from stepscope.spans import Spans
from stepscope.version import StepState


class Ending:
    """
    That of this process's window. Used where boundary calls are carried out, on their thread.
    """

    def __init__(self, *, state: StepState, spans: Spans, clock: Callable[[], int], stop_after: bool) -> None:
        """
        With ``stop_after`` a replica's profiler stops when generation has resumed, not before the update.
        """
        self._state = state
        self._spans = spans
        self._clock = clock
        self._stop_after = stop_after
        self._delay_ns = 0
        """What profiling has kept the present update waiting."""
        self.late = False
        """The window was opened in the middle of its step."""

    def opened(self, opening: Opening, *, replica: bool) -> Generator[Opening | Closing, bool, bool]:
        """
        Open at the boundary; whether it records. A ``replica`` has an update that waits for this.
        """
        began_ns = self._clock() if replica else 0
        self._spans.flaw = ""
        self.late = False
        try:
            recording = yield opening
        except BaseException:
            # The block is not entered, so nobody would close what may have been opened.
            yield Closing(version=opening.param_version, reason=Reason.EXCEPTION, incomplete=Incomplete.NOT_PUBLISHED)
            raise
        if began_ns:
            self._delay_ns += self._clock() - began_ns
        return recording

    def closing(self, *, reason: str, incomplete: str) -> Closing:
        """
        What ends it now, with the flaw that it has.
        """
        flaw = self._spans.flaw or (Incomplete.OPENED_LATE if self.late else "")
        self._spans.flaw, self.late = "", False
        return Closing(version=self._state.now.param_version, reason=reason, incomplete=incomplete or flaw)

    def timed(self, closing: Closing, *, replica: bool) -> Flow:
        """
        Close; the update of a ``replica`` waits for it.
        """
        began_ns = self._clock() if replica and self._spans.windows.recording else 0
        try:
            yield closing
        finally:
            if began_ns:
                self._delay_ns += self._clock() - began_ns

    def at_boundary(self, closing: Closing, *, replica: bool) -> Flow:
        """
        Close, now or when the replica has resumed.
        """
        if not (replica and self._stop_after and self._linger(closing)):
            yield from self.timed(closing, replica=replica)

    def waited(self) -> float:
        """
        The seconds that profiling has kept the update waiting that is over now.
        """
        delay_ns, self._delay_ns = self._delay_ns, 0
        return delay_ns / 1e9

    def _linger(self, closing: Closing) -> bool:
        return self._spans.windows.linger(version=closing.version, incomplete=closing.incomplete)
