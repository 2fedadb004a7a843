"""
Mirrors spans onto the timeline of the profiler that records, and remembers those that cannot be on it.

One bridge lives as long as one window. Owns the marks that are open: all of them are ended before the profiler stops,
because a mark that outlives its session writes into memory that the next session has freed. Leaves starting and
stopping to :mod:`stepscope.windows`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stepscope.complaints import complaints
from stepscope.profilers import label, printable
from stepscope.seam import LiveSpan, LiveSpans
from stepscope.wire import ContinuedSpan

MAX_LISTED = 10_000
"""Spans that a close record lists, of each kind; without their names they take at most 1.5 MB of the 4 of a message."""

MAX_NAMES = 2_000_000
"""Characters of all names in it, each of which takes one byte: 200 for each span."""


class Marker:
    """
    Begins and ends marks on a timeline; the two calls of a profiler that the bridge needs.
    """

    def __init__(self, *, enter: Callable[[str], object], exit: Callable[[object], None]) -> None:  # noqa: A002
        self.enter = enter
        self.exit = exit


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """
    What became of the spans of one window. ``continued`` have their real times; end 0 is "open when it closed".

    A span that was cut off by the close is in both lists: its mark is on the timeline, ending with the window, which is
    over at ``over_unix_ns``: no mark ends later.
    """

    over_unix_ns: int
    mirrored: list[str]
    dropped: int
    continued: list[ContinuedSpan]


class Bridge:
    """
    The spans of one window. Callable from any thread; nothing here waits for anything but a mark.
    """

    def __init__(
        self,
        *,
        marker: Marker | None,
        thread: int | None = None,
        live: Sequence[LiveSpan] = (),
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """
        ``thread``, a native id, is the only one whose marks the profiler records (``None``: all); ``live`` began before
        the window.
        """
        self._marker = marker
        self._thread = thread
        self._clock = clock
        # The handler of a signal may begin and end spans while a mark is being made below it.
        self._lock = threading.RLock()
        self._over = False
        self._over_unix_ns = 0
        self._open: dict[int, tuple[object, ContinuedSpan]] = {}
        self._mirrored: list[str] = []
        self._dropped = 0
        self._continued: list[ContinuedSpan] = []
        self._names = 0
        native = {thread.ident: thread.native_id for thread in threading.enumerate()} if live else {}
        self._unmarked: dict[int, ContinuedSpan] = {
            span_id: _span(span_id, name, start, native.get(ident) or ident) for span_id, name, start, ident in live
        }

    @property
    def marks(self) -> int:
        """
        Marks made so far.
        """
        return len(self._mirrored) + self._dropped

    def started(self, span_id: int, name: str) -> int:
        """
        A span has begun on this thread: when its mark did, in nanoseconds since 1970, or 0 where it has none. One that
        waited here until the window was over is told now: it begins after it.
        """
        here = threading.get_native_id()
        span = _span(span_id, name, self._clock(), here)
        with self._lock:
            if self._over:
                return self._clock()
            if self._marker is None or (self._thread is not None and here != self._thread):
                self._unmarked[span_id] = span
                return 0
            try:
                handle = self._marker.enter(label(name, span_id))
                # At once: a thread that loses its core here gives span and mark two times. Mostly it does so before
                # torch has read its own clock, so the time before the call would be further off.
                moment = self._clock()
            except Exception as error:  # noqa: BLE001 - the span itself must not suffer; finalising adds it
                complaints.fault("mark", error)
                self._unmarked[span_id] = span
                return 0
            if self._finished():
                # A handler has ended the window meanwhile, and its session with it.
                _forsaken.append(handle)
                return self._clock()
            self._open[span_id] = (handle, replace(span, start_unix_ns=moment))
            if len(self._mirrored) < MAX_LISTED:
                self._mirrored.append(span.span_id)
            else:
                self._dropped += 1
            return moment

    def ended(self, span_id: int) -> int:
        """
        A span has ended, on whichever thread: when its mark did, in nanoseconds since 1970, or 0 where it has none.
        """
        with self._lock:
            if self._over:
                return 0
            if opened := self._open.pop(span_id, None):
                return self._leave(opened[0])
            if span := self._unmarked.pop(span_id, None):
                self._list(replace(span, end_unix_ns=self._clock()))
            return 0

    def finish(self) -> Marks:
        """
        End every mark, on this thread, and take no more; whoever held one finds it ended.
        """
        with self._lock:
            self._over = True
            for handle, span in self._open.values():
                self._list(span)
                self._leave(handle)
            for span in self._unmarked.values():
                self._list(span)
            self._open.clear()
            self._unmarked.clear()
            # After the marks: a thread that loses its core before they are ended has a window that is as much longer.
            self._over_unix_ns = self._over_unix_ns or self._clock()
            return Marks(
                over_unix_ns=self._over_unix_ns,
                mirrored=self._mirrored,
                dropped=self._dropped,
                continued=self._continued,
            )

    def forsake(self) -> Marks:
        """
        Take no more and leave the marks as they are, for ever: ending or freeing one would touch a dead session.
        """
        with self._lock:
            _forsaken.extend(handle for handle, _ in self._open.values())
            self._marker = None
        return self.finish()

    def _finished(self) -> bool:
        return self._over

    def _leave(self, handle: object) -> int:
        if self._marker is None:
            return 0
        try:
            self._marker.exit(handle)
        except Exception as error:  # noqa: BLE001 - one bad mark must not leave others open, or cost the user a span
            complaints.fault("mark", error)
        return self._clock()

    def _list(self, span: ContinuedSpan) -> None:
        name = printable(span.name)
        if len(self._continued) < MAX_LISTED and self._names + len(name) <= MAX_NAMES:
            self._continued.append(replace(span, name=name))
            self._names += len(name)
        else:
            self._dropped += 1


def alive(live_spans: LiveSpans) -> Sequence[LiveSpan]:
    """
    The spans that are open now; none where that cannot be had.
    """
    try:
        return live_spans()
    except Exception as error:  # noqa: BLE001 - the profiler runs already; without them the recording has less
        complaints.fault("live spans", error)
        return ()


def _span(span_id: int, name: str, start_unix_ns: int, thread: int) -> ContinuedSpan:
    return ContinuedSpan(
        span_id=f"{span_id:016x}", name=name, start_unix_ns=start_unix_ns, end_unix_ns=0, thread=thread
    )


_forsaken: list[object] = []
"""Marks that must not be freed."""
