"""
Holds signals back while a profiler starts or stops, because an exception in the midst of it leaves torch half on.

Ctrl-C there crashed the process at its exit, and the window ended as if the process had been lost. A Python handler
runs on the main thread between two instructions, so on other threads there is nothing to hold back. Handlers that were
due run right after, in the order in which the signals came.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""Signals whose handlers commonly raise: people, orchestrators, preemption notices, timeouts."""


@contextlib.contextmanager
def held() -> Iterator[None]:
    """
    No handler of :data:`HELD` runs inside; what one raises is raised at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
    try:
        for number in HELD:
            handler = signal.getsignal(number)
            # Not those of C code and the default actions: they raise nothing.
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, lambda which, _: came.append(which))
        yield
    finally:
        for which, former in handlers.items():
            signal.signal(which, former)
        _deliver(came, handlers)


def _deliver(came: list[int], handlers: dict[int, Callable[[int, FrameType | None], object]]) -> None:
    """
    Run what was due; all of it, although one may raise.
    """
    if not came:
        return
    try:
        handlers[came[0]](came[0], sys._getframe())  # noqa: SLF001 - what the interpreter passes
    finally:
        _deliver(came[1:], handlers)
