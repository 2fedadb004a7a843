"""
Holds signals back while a profiler starts or stops, because an exception in the midst of it leaves torch half on.

Ctrl-C there crashed the process at its exit, and the window ended as if the process had been lost. A Python handler
runs on the main thread between two instructions, so on other threads there is nothing to hold back. Handlers that were
due run right after, in the order in which the signals came. What one raises, a timeout say, is the program's own and is
to reach it: :func:`theirs` tells it from an error of ours.
"""

# ruff: noqa: ARG002 - the interpreter passes it

import contextlib
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

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
                _seen.update(_code(handler))
                signal.signal(number, _Holding(handler, came))
        yield
    finally:
        try:
            _restore(list(handlers.items()))
        finally:
            _deliver(came, handlers)


def _restore(left: list[tuple[int, Callable[[int, FrameType | None], object]]]) -> None:
    """
    Put all of ``left`` back, although one that is back already may run and raise before the next is.
    """
    try:
        while left:
            # Taken off the list afterwards: what was due is run by this very call, before it does anything.
            signal.signal(*left[-1])
            left.pop()
    finally:
        if left:
            _restore(left)


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


class _Holding:
    """
    Stands in for the handler ``former`` and notes what came.
    """

    def __init__(self, former: Callable[[int, FrameType | None], object], came: list[int]) -> None:
        self.former = former
        self._came = came

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)


def holds(number: int) -> bool:
    """
    Whether the handler of ``number`` is held back now; on any thread.
    """
    return isinstance(signal.getsignal(number), _Holding)


def handler(number: int) -> object:
    """
    The handler of ``number`` that is in force, or will be as soon as it is no longer held back.
    """
    found: object = signal.getsignal(number)
    while isinstance(found, _Holding):
        found = found.former
    return found


def theirs(error: BaseException) -> bool:
    """
    Whether the handler of a signal has raised ``error``: it only happens to have come up in code of ours.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = _seen.union(*(_code(signal.getsignal(number)) for number in signal.valid_signals()))
    return any(frame.f_code in codes for frame in _frames(error.__traceback__))


_seen: set[CodeType] = set()
"""Of handlers that were held back: one may be exchanged for another by the time that it raises."""


def _code(handler: Any) -> set[CodeType]:
    """
    What ``handler`` runs, where that is Python.
    """
    while isinstance(handler, functools.partial):
        handler = handler.func
    # A function, a method, or an object that can be called.
    places = (handler, getattr(handler, "__func__", None), type(handler).__call__ if callable(handler) else None)
    found = (getattr(place, "__code__", None) for place in places)
    return {code for code in found if isinstance(code, CodeType)}


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
