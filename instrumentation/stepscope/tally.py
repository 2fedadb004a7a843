"""
Sums that grow wherever spans end, and a bell for the threads that work on what has come.

Both may be used in the handler of a signal and in a finalizer, which come between any two instructions of the thread
that they interrupt: nothing here waits for a lock that the interrupted code might hold, and nothing is lost then. What
is summed is the caller's.
"""

import queue
import threading
from collections import deque

FOLDED = 1024
"""Additions that are kept one by one: 100 KB, where nobody asks for the sums for a long time."""


class Tally:
    """
    Sums by name. Thread-safe, also towards what interrupts a thread.
    """

    def __init__(self) -> None:
        # Held by other threads for moments only; the one that is interrupted gets it again.
        self._lock = threading.RLock()
        self._added: deque[tuple[str, float]] = deque()

    def add(self, name: str, amount: float = 1) -> None:
        """
        Add to the sum of ``name``.
        """
        self._added.append((name, amount))
        if len(self._added) > FOLDED:
            self.sums()

    def take(self) -> dict[str, float]:
        """
        The sums since they were taken last. What an interrupted reading has in hand comes with the next.
        """
        with self._lock:
            sums: dict[str, float] = {}
            for _ in range(len(self._added)):
                try:
                    name, amount = self._added.popleft()
                except IndexError:
                    # Whoever interrupted this has taken the rest.
                    break
                sums[name] = sums.get(name, 0) + amount
            return sums

    def sums(self) -> dict[str, float]:
        """
        The same, and they go on.
        """
        with self._lock:
            sums = self.take()
            self._added.extend(sums.items())
            return sums


class Bell:
    """
    Wakes one waiting thread. An event of :mod:`threading` could not be set while the same thread is setting it.
    """

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """
        End the present wait, or the next one.
        """
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, seconds: float | None) -> None:
        """
        Wait for :meth:`ring`, ``seconds`` at most.
        """
        try:
            self._rings.get(timeout=seconds)
            while True:
                self._rings.get_nowait()
        except queue.Empty:
            return
