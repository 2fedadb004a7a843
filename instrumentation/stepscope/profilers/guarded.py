"""
Keeps a registered profiler that hangs from holding the training: it starts and stops on a thread of its own, and each
call is waited for only so long.

Owns that thread, which lives from a start to its stop, so that a profiler is stopped by the thread that started it. A
call that takes too long is left behind: the window ends, and the profiler is not used again until it has returned.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from stepscope.complaints import complaints
from stepscope.profilers import Armed, Profiler, Recording, Request, UnavailableError

DEADLINE = 30.0
"""Seconds for a start or a stop: writing a large recording takes some. The same as for an engine's."""

ANSWER = 2.0
"""Seconds to say whether it can be used: that is to be cheap, and the registration waits for it."""

T = TypeVar("T")


class Guarded:
    """
    ``profiler``, unable to hang whoever calls it. Marks and metadata go to it directly.
    """

    def __init__(self, profiler: Profiler, *, deadline: float | None = None) -> None:
        self._profiler = profiler
        self._deadline = deadline
        self._thread: _Thread | None = None
        self._stuck: _Call | None = None
        self._silent: _Call | None = None

    @property
    def name(self) -> str:
        """
        The tool's name.
        """
        return self._profiler.name

    def unavailable(self) -> str | None:
        """
        What the profiler says or raises, or that a call to it has not returned.
        """
        for stuck in (self._stuck, self._silent):
            if stuck is not None and not stuck.done.is_set():
                return f"its {stuck.what} has not returned"
        deadline = ANSWER if self._deadline is None else self._deadline
        # On a thread for this alone: the other one may be recording, and this is asked whenever a sidecar comes.
        thread, call = _Thread(), _Call("unavailable", self._profiler.unavailable, None)
        thread.calls.put(call)
        thread.calls.put(None)
        if not call.wait(deadline):
            self._silent = call
            return f"its unavailable has not returned within {deadline:g} s"
        if call.error is not None:
            return f"{type(call.error).__name__}: {call.error}"
        return call.answer  # type: ignore[return-value]  # what the profiler answered

    def foreign(self) -> bool:
        """
        What the profiler says.
        """
        return self._profiler.foreign()

    def prepare(self) -> None:
        """
        Prepare the profiler.
        """
        self._apart("prepare", self._profiler.prepare)

    def start(self, request: Request) -> Armed:
        """
        Start the profiler. One that starts too late is stopped at once, and keeps nothing.
        """
        profiler = self._profiler
        return self._apart(
            "start", lambda: profiler.start(request), late=lambda: profiler.stop(request, keep=False), stays=True
        )

    def describe(self, metadata: Mapping[str, str]) -> None:
        """
        Put ``metadata`` into the recording.
        """
        self._profiler.describe(metadata)

    def enter(self, label: str) -> object:
        """
        Begin a mark, on this thread.
        """
        return self._profiler.enter(label)

    def exit(self, handle: object) -> None:
        """
        End a mark.
        """
        self._profiler.exit(handle)

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop the profiler.
        """
        return self._apart("stop", lambda: self._profiler.stop(request, keep=keep))

    def abandon(self) -> None:
        """
        Let go of the recording.
        """
        self._apart("abandon", self._profiler.abandon)

    def _apart(
        self, what: str, work: Callable[[], T], *, late: Callable[[], object] | None = None, stays: bool = False
    ) -> T:
        """
        Do ``work`` on the profiler's thread; what it answers or raises.

        Raises:
            TimeoutError: it has not returned in time. ``late`` is done once it has.
            UnavailableError: a former call has not returned yet.
        """
        stuck = self._stuck
        if stuck is not None and not stuck.done.is_set():
            raise UnavailableError(f"its {stuck.what} has not returned")
        self._stuck = None
        deadline = DEADLINE if self._deadline is None else self._deadline
        thread = self._thread = self._thread or _Thread()
        call = _Call(what, work, late)
        thread.calls.put(call)
        in_time = call.wait(deadline)
        if not in_time:
            self._stuck = call
        if not in_time or not stays or call.error is not None:
            thread.calls.put(None)
            self._thread = None
        if not in_time:
            raise TimeoutError(f"{what} has not returned within {deadline:g} s")
        if call.error is not None:
            raise call.error
        return call.answer  # type: ignore[return-value]  # what ``work`` answered


class _Call:
    """
    Something to do on the profiler's thread, and what came of it.
    """

    def __init__(self, what: str, work: Callable[[], object], late: Callable[[], object] | None) -> None:
        self.what = what
        self.done = threading.Event()
        self.answer: object = None
        self.error: BaseException | None = None
        self._work = work
        self._late = late
        self._lock = threading.Lock()
        self._over = self._left = False

    def wait(self, deadline: float) -> bool:
        """
        Whether it is over within ``deadline`` seconds; if not, it counts as left behind.
        """
        self.done.wait(deadline)
        with self._lock:
            self._left = not self._over
        return self._over

    def __call__(self) -> None:
        """
        Do it; where it was left behind, put in order what came of it too late.
        """
        try:
            self.answer = self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
            self.error = error
        with self._lock:
            self._over = not self._left
        if self._left and self._late is not None and self.error is None:
            try:
                self._late()
            except Exception as error:  # noqa: BLE001 - nobody waits for it any more
                complaints.fault("stopping a profiler that started too late", error)
        self.done.set()


class _Thread:
    """
    Does calls one after another, until told to end.
    """

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="stepscope-profiler", daemon=True).start()

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            call()
