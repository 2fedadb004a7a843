"""
Bytes from a source that may never answer, read aside: on threads that nobody waits for, at a deadline or at the end.

The event loop's own threads are joined when it ends, and are few; a file system of somebody else's must not have them.
What a source holds is given back by the thread that reads it, when it can.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator


class Aside:
    """
    Reads. Use it in the event loop alone.
    """

    def __init__(self, name: str, *, seconds: float, most: int) -> None:
        """
        Threads are called ``name``; each piece may take ``seconds``, and ``most`` sources may be read at a time, those
        that have never answered included.
        """
        self._name, self._seconds, self._most = name, seconds, most
        self._busy = 0
        self._lock = threading.Lock()

    async def read(self, source: Callable[[], Generator[bytes]]) -> AsyncGenerator[bytes]:
        """
        The pieces of ``source``, which runs on a thread and is closed there.

        Raises:
            TimeoutError: a piece takes too long, or too many sources have not answered.
            Exception: whatever ``source`` raises.
        """
        with self._lock:
            if self._busy >= self._most:
                raise TimeoutError(f"{self._most} sources have not answered")
            self._busy += 1
        loop = asyncio.get_running_loop()
        wanted: queue.SimpleQueue[asyncio.Future[bytes | None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, args=(source, wanted, loop), name=self._name, daemon=True).start()
        try:
            while True:
                answer: asyncio.Future[bytes | None] = loop.create_future()
                wanted.put(answer)
                async with asyncio.timeout(self._seconds):
                    piece = await answer
                if piece is None:
                    return
                yield piece
        finally:
            wanted.put(None)

    def _serve(
        self,
        source: Callable[[], Generator[bytes]],
        wanted: "queue.SimpleQueue[asyncio.Future[bytes | None] | None]",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        pieces = source()
        try:
            # A loop that has ended wants nothing more.
            with contextlib.suppress(RuntimeError):
                while (answer := wanted.get()) is not None:
                    found: bytes | Exception | None
                    try:
                        found = next(pieces, None)
                    except Exception as error:  # noqa: BLE001 - it is raised where the piece is waited for
                        found = error
                    loop.call_soon_threadsafe(_settle, answer, found)
            with contextlib.suppress(Exception):
                # Whoever read has all that there was to have.
                pieces.close()
        finally:
            with self._lock:
                self._busy -= 1


def _settle(answer: "asyncio.Future[bytes | None]", found: bytes | Exception | None) -> None:
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
