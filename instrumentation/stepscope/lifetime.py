"""
How a process ends: at exit, by SIGTERM, and as a forked child that must do nothing at all.

A signal handler runs between any two instructions of the main thread, which may hold any lock just then. So ours does
not shut down by itself: it raises ``SystemExit``, blocks are left in order, and the shutdown at exit does the rest
and then ends the process by the signal, as if nobody had caught it. Should the program stand in the way, or the main
thread be inside a C call that does not return, a watchdog does the same from outside.
"""

# ruff: noqa: ARG002 - the interpreter passes it

import atexit
import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from stepscope import interrupts
from stepscope.complaints import complaints
from stepscope.wakeup import Wakeup

REACH = 6.0
"""
Seconds after SIGTERM for the main thread to come back to Python, where the handler runs: a step's own operations take
less, and a collective whose peer is gone never does. Without us the signal would have ended it at once.
"""

PATIENCE = 25.0
"""
Seconds after SIGTERM for a program that has been told to leave its blocks, where it may save a checkpoint: Kubernetes,
torchrun and Slurm kill after 30, and the last words have to fit in, too.
"""

LAST_WORDS = 3.0
"""Seconds for a shutdown from outside, where the program did not leave by itself."""


class Lifetime:
    """
    Calls ``shutdown`` before the process ends, and ``forget`` in a forked child. Installed once in a process.
    """

    def __init__(self, *, shutdown: Callable[[], None], forget: Callable[[], None]) -> None:
        self._shutdown = shutdown
        self._forget = forget
        self._pid = os.getpid()
        self._wakeup: Wakeup | None = None
        self._terminated = False
        self._reached = threading.Event()
        self._over = threading.Event()
        self._masks = threading.local()

    def install(self) -> None:
        """
        Take hold of the ways out of this process. SIGTERM only from the main thread, and only if it is nobody's.
        """
        atexit.register(self._at_exit)
        os.register_at_fork(before=self._before_fork, after_in_parent=self._unmask, after_in_child=self._in_child)
        self.guard_sigterm()

    def guard_sigterm(self) -> None:
        """
        Take SIGTERM if it can be taken.
        """
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._close_wakeup()
        try:
            self._wakeup = Wakeup(signal.SIGTERM, came=self._came)
        except (OSError, RuntimeError) as error:
            complaints.fault("watching for SIGTERM", error)

    def release_sigterm(self) -> None:
        """
        Give SIGTERM back if it is still ours.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # A program that was told to leave is to do so, also where it has called shutdown() on its way.
        if not self._terminated:
            self._close_wakeup()

    def _close_wakeup(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            wakeup.close()

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        self._shutdown()
        self._over.set()
        if self._terminated:
            _die()

    def _before_fork(self) -> None:
        # A child has our pipe until it forgets: what ended the child would be taken for the end of its parent.
        if os.getpid() == self._pid:
            self._masks.former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _unmask(self) -> None:
        former = self._masks.__dict__.pop("former", None)
        if former is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)

    def _in_child(self) -> None:
        self._forget()
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            wakeup.forget()
        self.release_sigterm()
        self._unmask()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            _die()
        if self._terminated:
            return
        self._terminated = True
        self._reached.set()
        if self._wakeup is None or not self._wakeup.ring():
            threading.Thread(target=self._came, name="stepscope-sigterm", daemon=True).start()
        raise SystemExit(128 + number)

    def _came(self) -> None:
        """
        SIGTERM came: see to it that the process ends, if the signal is ours.
        """
        deadline = time.monotonic() + PATIENCE
        if not self._reached.wait(REACH) and interrupts.holds(signal.SIGTERM):
            # A profiler starts or stops: half a recording would be none.
            self._reached.wait(deadline - time.monotonic())
        if self._reached.is_set():
            if self._left_by(deadline):
                return
        elif interrupts.handler(signal.SIGTERM) != self._on_sigterm:
            return
        last = threading.Thread(target=self._shutdown, name="stepscope-last-words", daemon=True)
        last.start()
        last.join(LAST_WORDS)
        # It may have come back to Python by now.
        if not self._reached.is_set() or not self._left_by(deadline):
            _die()

    def _left_by(self, deadline: float) -> bool:
        return self._over.wait(max(0.0, deadline - time.monotonic()))


def _die() -> None:
    """
    End the process by SIGTERM, as if nobody had caught it; on any thread.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    elif _native is not None:
        _native(int(signal.SIGTERM), None)
    else:
        os._exit(128 + signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)


def _c_signal() -> Callable[[int, None], object] | None:
    """
    C's ``signal``, which sets the default action (a null pointer) on any thread; Python's does so on the main thread.
    """
    with contextlib.suppress(OSError, AttributeError):
        function = ctypes.CDLL(None).signal
        function.argtypes = (ctypes.c_int, ctypes.c_void_p)
        function.restype = ctypes.c_void_p
        return function
    return None


_native = _c_signal()
"""Found at once: the main thread may be inside the loader, and hold its lock, by the time that it is needed."""
