"""
How a process ends: at exit, by SIGTERM, and as a forked child that must do nothing at all.

A signal handler runs between any two instructions of the main thread, which may hold any lock just then. So ours does
not shut down by itself: it raises ``SystemExit``, blocks are left in order, and the shutdown at exit does the rest
and then ends the process by the signal, as if nobody had caught it. Should the program stand in the way, a watchdog
does the same from outside.
"""

# ruff: noqa: ARG002 - the interpreter passes it

import atexit
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

PATIENCE = 8.0
"""Seconds for a program to leave its blocks after SIGTERM; orchestrators commonly kill after 10 to 30."""

LAST_WORDS = 2.0
"""Seconds of that for a shutdown from outside, where the program did not leave by itself."""


class Lifetime:
    """
    Calls ``shutdown`` before the process ends, and ``forget`` in a forked child. Installed once in a process.
    """

    def __init__(self, *, shutdown: Callable[[], None], forget: Callable[[], None]) -> None:
        self._shutdown = shutdown
        self._forget = forget
        self._pid = os.getpid()
        self._terminated = False
        self._over = threading.Event()

    def install(self) -> None:
        """
        Take hold of the ways out of this process. SIGTERM only from the main thread, and only if it is nobody's.
        """
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_child)
        self.guard_sigterm()

    def guard_sigterm(self) -> None:
        """
        Take SIGTERM if it can be taken.
        """
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def release_sigterm(self) -> None:
        """
        Give SIGTERM back if it is still ours.
        """
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        self._shutdown()
        self._over.set()
        if self._terminated:
            _die()

    def _in_child(self) -> None:
        self._forget()
        self.release_sigterm()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            _die()
        if self._terminated:
            return
        self._terminated = True
        threading.Thread(target=self._watch, name="stepscope-sigterm", daemon=True).start()
        raise SystemExit(128 + number)

    def _watch(self) -> None:
        if self._over.wait(PATIENCE - LAST_WORDS):
            return
        last = threading.Thread(target=self._shutdown, name="stepscope-last-words", daemon=True)
        last.start()
        last.join(LAST_WORDS)
        # signal.signal() works on the main thread alone; what the default would do is what os._exit does here.
        os._exit(128 + signal.SIGTERM)


def _die() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
