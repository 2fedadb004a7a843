"""
How the connection's thread waits: for its socket, or until another thread has something for it to do.

Owns the pipe that wakes it. What is read, written or due is :mod:`stepscope.connection`'s.
"""

import contextlib
import select
import socket
from dataclasses import dataclass

CHUNK = 1 << 16
"""Bytes of wake-ups read at once; any number of them means the same."""


@dataclass(frozen=True, slots=True)
class Events:
    """
    What can be done with the socket now.
    """

    readable: bool
    writable: bool


class Waiting:
    """
    One waiting thread, and any number that wake it.
    """

    def __init__(self) -> None:
        self._in, self._out = socket.socketpair()
        self._in.setblocking(False)
        self._out.setblocking(False)

    def wake(self) -> None:
        """
        End the present wait, or the next one.
        """
        # A full pipe means that the thread is being woken already.
        with contextlib.suppress(OSError):
            self._out.send(b"w")

    def pause(self, seconds: float) -> None:
        """
        Wait for :meth:`wake`, ``seconds`` at most.
        """
        self._poll(select.poll(), seconds)

    def until_ready(self, sock: socket.socket, seconds: float | None, *, writing: bool) -> Events:
        """
        Wait until ``sock`` can be read (or written, where ``writing``), for :meth:`wake`, or for ``seconds``.
        """
        # Not select(): a training process may have more than its 1,024 files open.
        poll = select.poll()
        poll.register(sock, select.POLLIN | (select.POLLOUT if writing else 0))
        # A millisecond more: poll cuts off fractions, and would come back just before a deadline.
        found = self._poll(poll, None if seconds is None else seconds + 0.001).get(sock.fileno(), 0)
        return Events(readable=bool(found & ~select.POLLOUT), writable=bool(found & select.POLLOUT))

    def close(self) -> None:
        """
        Close both ends; nobody waits any more.
        """
        for end in (self._in, self._out):
            with contextlib.suppress(OSError):
                end.close()

    def _poll(self, poll: "select.poll", seconds: float | None) -> dict[int, int]:
        poll.register(self._in, select.POLLIN)
        events = dict(poll.poll(None if seconds is None else seconds * 1000))
        with contextlib.suppress(BlockingIOError):
            self._in.recv(CHUNK)
        return events
