"""
Drives ``torch.profiler`` so that none of its known ways to kill the process can be reached.

Owns levels and thread rules, found by experiment on torch 2.13: at level ``ops`` any thread may stop the profiler while
others train, at all other levels it belongs to the thread that started it. A session that another profiler has taken
over is neither stopped nor exported, and its marks are neither ended nor freed.
"""

import functools
import importlib
import importlib.util
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepscope.names import Level
from stepscope.profilers import Armed, ForeignProfilerError, NoArtifactError, Recording, Request, forks, plain
from stepscope.profilers.inflight import Annotations, Grace

LOG = logging.getLogger("stepscope")

TAKEN_OVER = "another torch profiler was started inside the window and took it over"

RAW = "recording.json"
"""The raw recording within the window's folder."""

PARTIAL = "recording.partial.json"
"""The same while it is being written."""

THREAD_BOUND = frozenset({Level.DEVICE, Level.SPANS, Level.FULL})
"""Levels at which the profiler sees the starting thread alone, and only that thread may stop it. With all threads,
annotations alone, shapes and stacks each crash the process while other threads train; plain operators do not."""


class TorchProfiler:
    """
    The profiler ``torch``. One session at a time in a process, however many of these objects there are.
    """

    name = "torch"

    def __init__(self) -> None:
        self._session: Any = None
        self._bound = True
        self._gave_way = False

    def unavailable(self) -> str | None:
        """
        Why it cannot be used here.
        """
        return None if importlib.util.find_spec("torch") else "torch is not installed"

    def foreign(self) -> bool:
        """
        Whether a profiler that is not ours is on, so that a start would break both.
        """
        if "torch" not in sys.modules:
            return False
        kineto = _kineto()
        kineto.forget_dropped()
        _settle_leftover()
        return self.inherited or (not kineto.mine() and kineto.on())

    @property
    def inherited(self) -> bool:
        """
        Whether this process was forked while its parent recorded: torch takes that session for its own, for ever.
        """
        return _inherited

    def prepare(self) -> None:
        """
        Start and stop once: the first time imports parts of torch and takes seconds.
        """
        request = Request(window="", level=Level.SPANS, folder=Path())
        self.start(request)
        self.exit(self.enter("stepscope"))
        self.stop(request, keep=False)

    def start(self, request: Request) -> Armed:
        """
        Begin to record. Falls back to level ``ops`` where the boundary may come on another thread.
        """
        with _turn:
            return self._start(request)

    def _start(self, request: Request) -> Armed:
        global _recording
        kineto = _kineto()
        if not _owner.acquire(blocking=False):
            raise ForeignProfilerError("another window records in this process")
        try:
            if kineto.on():
                raise ForeignProfilerError("a torch profiler is already on in this process")
            forks.guard()
            level, fallback = Level(request.level), ""
            no_scopes = level is Level.SPANS and not kineto.takes_scopes()
            if no_scopes or (level in THREAD_BOUND and request.roaming):
                level, fallback = Level.OPS, request.level
            bound = level in THREAD_BOUND
            session = kineto.session(level, all_threads=not bound)
            kineto.start(session, annotations_only=level is Level.SPANS)
            kineto.claim()
            _annotations().track(thread=threading.get_native_id() if bound else None)
        except BaseException:
            _owner.release()
            raise
        self._session, self._bound, self._gave_way = session, bound, False
        _recording = self
        if not kineto.has_distributed_info(session):
            world = request.world_size if request.world_size is not None else 1
            told = {"backend": "none", "rank": request.rank, "world_size": world}
            session.add_metadata_json("distributedInfo", json.dumps(told))
        return Armed(
            level=level,
            fallback=fallback,
            thread_bound=bound,
            all_threads=not bound,
            marks=level is not Level.DEVICE,
        )

    def describe(self, metadata: Mapping[str, str]) -> None:
        """
        Add keys to the file. What is not printable is percent-encoded: it would make the file no JSON.
        """
        session = self._session
        for key, value in metadata.items() if session is not None else ():
            session.add_metadata_json(plain(key), json.dumps(plain(value)))

    def enter(self, label: str) -> object:
        """
        Begin a mark, unless the session has been taken over.
        """
        kineto = _kineto()
        return kineto.enter(label, None) if kineto.mine() else None

    def exit(self, handle: object) -> None:
        """
        End a mark. One of a session that was taken over is neither ended nor freed: both write into that session.
        """
        kineto = _kineto()
        if handle is None:
            return
        if kineto.mine():
            kineto.leave(handle)
        else:
            _kept.append(handle)

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop and write. A session that was taken over is left alone: stopping it kills the process.
        """
        kineto, before = _kineto(), time.perf_counter()
        with _turn:
            session, self._session = self._session, None
            if session is None:
                if self._gave_way:
                    raise ForeignProfilerError(TAKEN_OVER)
                raise NoArtifactError("the profiler was not started")
            try:
                if not kineto.mine():
                    _leave(session, bound=self._bound)
                    raise ForeignProfilerError(TAKEN_OVER)
                _end(session, bound=self._bound)
            finally:
                _annotations().release()
                _owner.release()
        stopped = time.perf_counter()
        stall = {"stop": stopped - before}
        if not keep:
            return Recording(artifact="", stall=stall)
        if kineto.is_empty(session):
            raise NoArtifactError("the profiler's session was empty")
        partial = request.folder / PARTIAL
        session.export_chrome_trace(str(partial))
        if not partial.is_file() or not partial.stat().st_size:
            raise NoArtifactError("the profiler wrote no file")
        partial.replace(request.folder / RAW)
        return Recording(artifact=RAW, stall={**stall, "export": time.perf_counter() - stopped})

    def make_way(self) -> None:
        """
        Somebody else's profiler is about to be made ready: give up a session of all threads before it is.

        Theirs would end it, with operators of other threads in the midst of writing into it. One that belongs to its
        thread sees no other, and is left alone.
        """
        if self._session is None or self._bound or not _kineto().mine():
            return
        session, self._session, self._gave_way = self._session, None, True
        try:
            _end(session, bound=False)
        finally:
            _annotations().release()
            _owner.release()

    def abandon(self) -> None:
        """
        Take an abandoned session over by a short one of this thread: left as it is, it crashes the exit.
        """
        kineto, session = _kineto(), self._session
        self._session = None
        if session is None:
            return
        _kept.append(session)
        try:
            if kineto.mine() and not kineto.on_here():
                successor = kineto.session(Level.OPS, all_threads=True)
                kineto.start(successor, annotations_only=False)
                kineto.tell_no_more(successor)
                _grace.settle()
                successor.stop_trace()
        finally:
            _annotations().release()
            _owner.release()


_owner = threading.Lock()
"""Held while a session of ours is open in this process."""

_turn = threading.RLock()
"""Held while a session of ours begins or ends: meanwhile nobody else's profiler is made ready."""

_recording: TorchProfiler | None = None
"""Whose session was the last to begin."""


def _end(session: Any, *, bound: bool) -> None:
    """
    Stop ``session``: one of all threads once none of them is in the midst of writing into it.
    """
    annotations = _annotations()
    annotations.finish()
    if not bound:
        _kineto().tell_no_more(session)
        _grace.settle()
        # Those that were begun before the session was told no more.
        annotations.finish()
    session.stop_trace()


def _make_way() -> None:
    with _turn:
        if _recording is not None:
            try:
                _recording.make_way()
            except Exception as error:  # noqa: BLE001 - theirs begins all the same, as it would have without us
                LOG.warning("a window could not make way for another torch profiler: %s", error)


_leftover: tuple[Any, int] | None = None
"""A session of ours that could not be stopped, and the thread that may; 0: any."""


def _leave(session: Any, *, bound: bool) -> None:
    global _leftover
    _kept.append(session)
    _leftover = (session, threading.get_native_id() if bound else 0)


def _settle_leftover() -> None:
    """
    Stop a session that a profiler stood in the way of which was made ready and then dropped without ever beginning.
    What it recorded is gone, and is not asked for.
    """
    global _leftover
    if _leftover is None or not _kineto().mine():
        return
    session, thread = _leftover
    if thread in {0, threading.get_native_id()} and _owner.acquire(blocking=False):
        _leftover = None
        try:
            _end(session, bound=thread != 0)
        finally:
            _owner.release()


_inherited = False


def _in_child() -> None:
    global _inherited, _recording, _turn
    _inherited = _owner.locked()
    _recording, _turn = None, threading.RLock()


os.register_at_fork(after_in_child=_in_child)

_grace = Grace()

_kept: list[object] = []
"""Sessions and marks that must not be freed: torch may still write into them."""


@functools.cache
def _annotations() -> Annotations:
    return Annotations(_kineto().annotation)


@functools.cache
def _kineto() -> Any:
    """
    torch's private parts: imported when first needed, and quietly (Kineto prints a line at each window otherwise).
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    kineto: Any = importlib.import_module("stepscope.profilers.kineto")
    kineto.make_way = _make_way
    return kineto
