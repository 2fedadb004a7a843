"""
What other threads may be in the middle of when a session of torch's profiler ends, and what is done about it.

A session of all threads frees its memory while an operator of another thread may still write into it, and what one
session saw begin and the next sees end is written into memory of the first: seven of twelve runs with three other
threads and 60 windows died of it. So a stop goes the way of read-copy-update: no new operator is told to the session,
those that run are waited for, then it ends. Annotations, which may be open for long, are tracked and ended with it.
"""

# ruff: noqa: SLF001 - the frames of other threads have no public name

import os
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

POLL = 0.002
"""Seconds between two looks at the threads; one takes some microseconds each."""

BLOCKED = 0.05
"""Seconds after which a thread that stands still and has hardly wanted a processor is in no operator, but waits."""

AT_WORK = 0.1
"""
Share of that time from which on a thread is at work. A main thread of Ray, which waits for tasks in C++, wakes now and
then and wants 0.004; an operator wants nearly all of it, running or waiting for its turn.
"""

LIMIT = 1.0
"""Seconds that an operator may still run before the session is ended all the same: all but the largest need less."""

STARVED = 0.9
"""Share of the time that an operator wants which has no core to run on: such a one is waited for beyond ``LIMIT``."""

CROWDED = 10.0
"""Seconds after which the session is ended on the most crowded machine."""

_IDLE = (sysconfig.get_paths()["stdlib"] + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)  # noqa: PTH120
_CALLERS = frozenset({"run", "_run"})
"""Functions of the standard library that call what they were given, which may be an operator."""

_PACKAGES = f"{os.sep}site-packages{os.sep}"

Position = tuple[int, int]


class Annotations:
    """
    The ``record_function`` blocks that are open while a session is on. Wraps its two methods for as long as that.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._lock = threading.RLock()
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._originals: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        os.register_at_fork(after_in_child=self._in_child)

    def track(self, *, thread: int | None) -> None:
        """
        From now on know the blocks that are begun (on the thread of that native id alone, if given).
        """
        enter, leave = self._originals = (self._kind.__enter__, self._kind.__exit__)

        def tracked_enter(block: Any) -> Any:
            if thread is not None and threading.get_native_id() != thread:
                return enter(block)
            with self._lock:
                block.run_callbacks_on_exit = True
                result = enter(block)
                self._open.add(block)
                return result

        def tracked_exit(block: Any, *error: Any) -> Any:
            # Under the lock, because ending one block from two threads at once would free it twice.
            with self._lock:
                self._open.discard(block)
                return leave(block, *error)

        self._kind.__enter__, self._kind.__exit__ = tracked_enter, tracked_exit

    def finish(self) -> None:
        """
        End the blocks that are open; leaving them later does nothing.
        """
        if self._originals is None:
            return
        leave = self._originals[1]
        with self._lock:
            for block in list(self._open):
                if block.run_callbacks_on_exit:
                    leave(block, None, None, None)
                    block.run_callbacks_on_exit = False
            self._open.clear()

    def release(self) -> None:
        """
        Track no more.
        """
        if self._originals is not None:
            self._kind.__enter__, self._kind.__exit__ = self._originals
            self._originals = None

    def _in_child(self) -> None:
        self._lock = threading.RLock()
        self._open = weakref.WeakSet()
        self.release()


class Grace:
    """
    Waits until the operators that other threads are in have returned.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._clock = clock
        self._wait = wait

    def settle(self) -> None:
        """
        Called when no new operator is told to the session any more.
        """
        begun = looked = now = self._clock()
        busy = _positions()
        first = counted = _counted(busy)
        while busy and now - begun < CROWDED:
            self._wait(POLL)
            now = self._clock()
            # A thread that has moved on, or ended, has left the operator it was in.
            there = _positions()
            busy = {thread: where for thread, where in busy.items() if there.get(thread) == where}
            if now - looked >= BLOCKED:
                before, counted = counted, _counted(busy)
                share = AT_WORK if now - begun < LIMIT else STARVED
                busy = {
                    thread: where
                    for thread, where in busy.items()
                    if _since(before, counted, thread).wanted > share * (now - looked) * 1e9
                    and _since(first, counted, thread).ran < LIMIT * 1e9
                }
                looked = now


class Counted(NamedTuple):
    """
    Nanoseconds that a thread has run, and that it has run or waited for a processor to run on.
    """

    ran: int
    wanted: int


def _since(before: Mapping[int, Counted], now: Mapping[int, Counted], thread: int) -> Counted:
    if thread not in before or thread not in now:
        return Counted(0, 0)
    return Counted(now[thread].ran - before[thread].ran, now[thread].wanted - before[thread].wanted)


def _counted(threads: Iterable[int]) -> dict[int, Counted]:
    """
    What the kernel has counted of each of ``threads``; those it has no count of are left out.
    """
    native = {thread.ident: thread.native_id for thread in threading.enumerate()}
    found = {}
    for thread in threads:
        try:
            ran, waited, *_ = Path(f"/proc/self/task/{native.get(thread)}/schedstat").read_text().split()
            found[thread] = Counted(int(ran), int(ran) + int(waited))
        except (OSError, ValueError):
            continue
    return found


def _positions() -> dict[int, Position]:
    """
    Where each other thread is, but for those that stand in the standard library or in our own code: those wait.
    """
    here = threading.get_ident()
    return {
        thread: (id(frame), frame.f_lasti)
        for thread, frame in sys._current_frames().items()
        if thread != here and not _idle(frame.f_code)
    }


def _idle(code: CodeType) -> bool:
    """
    Whether a thread that stands in ``code`` cannot be in an operator: what runs somebody's function may be.
    """
    path = code.co_filename
    return path.startswith(_IDLE) and _PACKAGES not in path and code.co_name not in _CALLERS
