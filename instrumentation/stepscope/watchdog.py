"""
The bounds of a window, watched from a thread of its own: seconds, growth of resident memory, bytes.

Owns when a bound is passed. What is done then is :mod:`stepscope.windows`'s: a thread-bound profiler is stopped by its
own thread, which may take until its next span.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from stepscope.complaints import complaints
from stepscope.names import Reason
from stepscope.tally import Bell
from stepscope.wire import Caps

MEMORY_INTERVAL = 0.5
"""Seconds between two looks at resident memory; one costs about 20 microseconds."""

MARK_BYTES = 300
"""Bytes that one mirrored span takes in the raw recording, measured: 250 to 330."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """
    Bytes of this process that are in memory; 0 where that cannot be read.
    """
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


class Watch:
    """
    The bounds of one window. ``marks`` counts its mirrored spans; what its operators take is reckoned by ``pace``, the
    bytes in a second of the recording before it. Where that is unknown, memory stands for them.
    """

    def __init__(
        self,
        caps: Caps,
        *,
        marks: Callable[[], int],
        pace: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._caps = caps
        self._pace = pace
        self._marks = marks
        self._clock = clock
        self._since = clock()
        self._resident = resident() if caps.memory else 0

    def passed(self) -> Reason | None:
        """
        The bound that has been passed, if any.
        """
        caps = self._caps
        lasted = self._clock() - self._since
        if caps.seconds and lasted >= caps.seconds:
            return Reason.CAP_SECONDS
        if caps.bytes and max(self._marks() * MARK_BYTES, self._pace * lasted) >= caps.bytes:
            return Reason.CAP_BYTES
        if caps.memory and resident() - self._resident >= caps.memory:
            return Reason.MEMORY_GUARD
        return None

    def pause(self) -> float | None:
        """
        Seconds until it makes sense to look again; ``None``: never.
        """
        caps = self._caps
        left = max(0.0, caps.seconds - (self._clock() - self._since)) if caps.seconds else None
        if caps.memory or caps.bytes:
            return MEMORY_INTERVAL if left is None else min(MEMORY_INTERVAL, left)
        return left


class Watchdog:
    """
    The thread. ``look`` does what is due and says how long to wait; it is called after every :meth:`wake`.
    """

    def __init__(self, look: Callable[[], float | None]) -> None:
        self._look = look
        self._bell = Bell()
        self._over = threading.Event()
        # The handler of a signal may wake it below a wake.
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """
        Something may be due. The first call starts the thread.
        """
        with self._starting:
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._run, name="stepscope-watchdog", daemon=True)
                self._thread.start()
        self._bell.ring()

    def close(self, timeout: float) -> None:
        """
        End the thread; what it is doing now is waited for, for ``timeout`` seconds.
        """
        self._over.set()
        self._bell.ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        pause: float | None = None
        while not self._over.is_set():
            self._bell.wait(pause)
            if self._over.is_set():
                return
            try:
                pause = self._look()
            except Exception as error:  # noqa: BLE001 - the thread guards the whole run and must live on
                complaints.fault("watchdog", error)
                pause = MEMORY_INTERVAL
