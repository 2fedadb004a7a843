"""
One at a time, among threads and the tasks of any number of event loops.

An actor of Ray with concurrency groups has an event loop for each; a lock of asyncio belongs to one, and would leave
the others' tasks asleep. What is done in a turn, and how long it is waited for, is the caller's.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable


class Turn:
    """
    May be taken on one thread and given back on another. Fair to nobody: who waits tries again when it is given back.
    """

    def __init__(self) -> None:
        self._taken = threading.Lock()
        self._holder = 0
        """The thread that took it; 0 for none."""
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def take(self, seconds: float) -> bool:
        """
        Take it on this thread, which waits for it for ``seconds``; whether it was taken.
        """
        # What has taken it on this very thread cannot go on meanwhile.
        return self._took(self._taken.acquire(timeout=0.0 if self._holder == threading.get_ident() else seconds))

    async def atake(self, seconds: float, *, wanted: Callable[[], bool] = lambda: True) -> bool:
        """
        The same in a coroutine, for as long as it is ``wanted``.
        """
        until = time.monotonic() + seconds
        while wanted():
            if self._took(self._taken.acquire(blocking=False)):
                return True
            loop = asyncio.get_running_loop()
            waiter = (loop, loop.create_future())
            self._waiters.append(waiter)
            try:
                # It may have been given back just before anybody could know of this waiter.
                if self._took(self._taken.acquire(blocking=False)):
                    return True
                given, _ = await asyncio.wait({waiter[1]}, timeout=max(0.0, until - time.monotonic()))
            finally:
                self._waiters.remove(waiter)
            if not given:
                return False
        return False

    def give(self) -> None:
        """
        Give it back.
        """
        self._holder = 0
        self._taken.release()
        for loop, given in list(self._waiters):
            # A loop that was closed has no task left that waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, given)

    def _took(self, taken: bool) -> bool:
        if taken:
            self._holder = threading.get_ident()
        return taken


def _settle(given: asyncio.Future[None]) -> None:
    if not given.done():
        given.set_result(None)
