"""
Hears of a signal although the main thread is inside a C call, where no handler in Python runs.

The interpreter writes the number of each signal that has such a handler into a pipe, at once and in C; a thread waits
at the other end. What follows from a signal is decided elsewhere. There is one such pipe in a process: where the
program has its own, as asyncio does for ``add_signal_handler``, it keeps it, and :meth:`Wakeup.ring` is what is left.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable

BATCH = 4096
"""Bytes read at a time: one for each signal, which come alone or, where a timer sends them, a few at a time."""

JOIN = 1.0
"""Seconds for the thread to end, which is microseconds of work; beyond that it is left behind with its pipe."""


class Wakeup:
    """
    Calls ``came`` on a thread of its own when signal ``number`` has come. Opened and closed on the main thread.
    """

    def __init__(self, number: int, *, came: Callable[[], None]) -> None:
        """
        Raises:
            OSError: no pipe can be had.
            RuntimeError: no thread can be had.
        """
        self._number = number
        self._came = came
        self._rung = False
        self._closing = False
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._thread = threading.Thread(target=self._run, name="stepscope-sigterm", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._close_pipe()
            raise
        former = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._known = former == -1
        if not self._known:
            _restore(former)

    def ring(self) -> bool:
        """
        The signal has come, says who knows: its handler, where the interpreter writes to somebody else. Whether there
        is still anybody to hear it.
        """
        self._rung = True
        self._poke()
        return self._thread.is_alive()

    def close(self) -> None:
        """
        End the thread and give the pipe back.
        """
        done = self._withdraw()
        self._closing = True
        self._poke()
        self._thread.join(JOIN)
        if done and not self._thread.is_alive():
            self._close_pipe()

    def forget(self) -> None:
        """
        In a forked child: signals that it gets are none of its parent's.
        """
        if self._withdraw():
            self._close_pipe()

    def _withdraw(self) -> bool:
        """
        Have the interpreter write to nobody, if it writes to us. Whether nobody else can have it write to us again:
        who took the place of our pipe may put it back when he leaves, and then its number must not be another file's.
        """
        former = signal.set_wakeup_fd(-1)
        if former == self._writing:
            return True
        if former != -1:
            _restore(former)
        return not self._known

    def _poke(self) -> None:
        # A full pipe wakes the thread just as well; one that somebody closed wakes nobody.
        with contextlib.suppress(OSError):
            os.write(self._writing, b"\0")

    def _close_pipe(self) -> None:
        os.close(self._reading)
        os.close(self._writing)

    def _run(self) -> None:
        while not self._closing:
            try:
                numbers = os.read(self._reading, BATCH)
            except OSError:
                # Closed by a program that closes whatever is open.
                return
            if not self._closing and (self._rung or self._number in numbers):
                self._rung = False
                self._came()


def _restore(former: int) -> None:
    # It may have been closed by now.
    with contextlib.suppress(OSError, ValueError):
        signal.set_wakeup_fd(former, warn_on_full_buffer=False)
