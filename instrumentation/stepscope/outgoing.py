"""
Bytes on their way to the peer of a connection, which may be slow to read, or not read at all.

Never waits for it. When something is sent, and what becomes of what cannot be, is :mod:`stepscope.connection`'s, whose
lock is held here.
"""

import contextlib
import socket

MAX_OUTGOING = 8 * 1024 * 1024
"""Bytes waiting for a peer that does not read, two of the largest messages; beyond it nothing is taken."""


class Outgoing:
    """
    What one peer after another has not read yet.
    """

    def __init__(self) -> None:
        self._sock: socket.socket | None = None
        self._waiting = bytearray()
        self._flushing = False

    def __len__(self) -> int:
        """
        Bytes that wait.
        """
        return len(self._waiting)

    def lead_to(self, sock: socket.socket) -> None:
        """
        From now on to ``sock``.
        """
        self._sock = sock

    def hang_up(self) -> None:
        """
        Close the socket; what waits was meant for this peer, and is left out.
        """
        sock, self._sock = self._sock, None
        self._waiting.clear()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    def push(self, line: bytes) -> bool:
        """
        Send ``line``, or have it wait; whether there is anybody, and room.
        """
        if self._sock is None or len(self._waiting) + len(line) > MAX_OUTGOING:
            return False
        self._waiting += line
        self.flush()
        return True

    def flush(self) -> None:
        """
        Send as much as is taken now.
        """
        if self._flushing:
            # What this interrupts sends it too.
            return
        self._flushing = True
        try:
            while self._waiting and self._sock is not None:
                sent = self._sock.send(self._waiting, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                del self._waiting[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # The reader sees the end of the connection too, and deals with it.
            self._waiting.clear()
        finally:
            self._flushing = False
