"""
The parts of torch that its documented interface does not reach, each behind a plain function.

Owns every private name of torch that we use, so that a new release is checked in one place. Which of it may be called
when, and on which thread, is :mod:`stepscope.profilers.torch`'s. Import this module only to record: it imports torch.
"""

# ruff: noqa: SLF001 - reaching the private names is what this module is for

import contextlib
import ctypes
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
import torch.autograd.profiler
import torch.profiler

from stepscope.names import Level
from stepscope.profilers import UnavailableError

_torch = cast("Any", torch)


annotation = _torch.autograd.profiler.record_function
"""What user code, and torch's own optimizers, mark a block with."""


ONLY_ERRORS = 2
"""torch's own number for the severity that is above a warning."""


class _Ours(int):
    """
    Stands in torch's process-wide "a profiler is enabled" flag while ours is; any other start or stop replaces it.
    """


_OURS = _Ours(1)

enter = _torch.ops.profiler._record_function_enter_new.default
"""Begins a mark: name and ``None``; answers with what ends it. Without a choice of overloads it takes half the time."""

leave = _torch.ops.profiler._record_function_exit._RecordFunction
"""Ends a mark, on any thread."""


class _Starting(threading.local):
    """
    Whether what this thread makes ready is a session of ours.
    """

    ours = False


_starting = _Starting()


def make_way() -> None:
    """
    What is done before somebody else's profiler is made ready. Whoever records replaces it.
    """


_prepared: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""Profilers that were made ready and have not begun: a schedule's warm-up. No flag of torch tells of them, and another
session that begins or ends meanwhile takes their state away, so that their own beginning kills the process."""


def _watch() -> None:
    """
    From now on know what is made ready, and find what was before.
    """
    kind = _torch.autograd.profiler.profile
    prepare, begin = kind._prepare_trace, kind._start_trace

    def _prepare_trace(profiler: Any) -> None:
        if not _starting.ours:
            make_way()
        _prepared.add(profiler)
        prepare(profiler)

    def _start_trace(profiler: Any) -> None:
        begin(profiler)
        _prepared.discard(profiler)

    kind._prepare_trace, kind._start_trace = _prepare_trace, _start_trace
    for found in gc.get_objects():
        # Not isinstance(), which asks the objects of other people for their class.
        if issubclass(type(found), kind) and found.entered and not found.profiling_start_time_ns:
            _prepared.add(found)


_watch()


_stayed: frozenset[int] = frozenset()
"""Those that were still there after the last look for dropped ones, by identity."""


def forget_dropped() -> None:
    """
    Forget those made ready that nobody holds any more: torch's profiler refers to itself, so that only the collector
    finds it. That can take a second, and is not done again for those that stayed.
    """
    global _stayed
    if _prepared and {id(profiler) for profiler in _prepared} != _stayed:
        gc.collect()
        _stayed = frozenset(id(profiler) for profiler in _prepared)


def mine() -> bool:
    """
    Whether the profiler that is on is the one that :func:`claim` spoke for, and no other has been made ready.
    """
    return _torch.autograd.profiler._is_profiler_enabled is _OURS and not _prepared


def claim() -> None:
    """
    The profiler that was just started is ours.
    """
    _torch.autograd.profiler._is_profiler_enabled = _OURS


def on_here() -> bool:
    """
    Whether this thread has a thread-bound profiler, ours or not.
    """
    return bool(_torch._C._autograd._profiler_enabled())


def on() -> bool:
    """
    Whether any profiler is on or made ready, ours or not: one flag is this thread's, the other the process's.
    """
    return bool(_torch.autograd.profiler._is_profiler_enabled) or on_here() or bool(_prepared)


def takes_scopes() -> bool:
    """
    Whether this torch can record annotations without operators.
    """
    return "scopes" in (_torch.autograd._enable_profiler.__doc__ or "")


def session(level: Level, *, all_threads: bool) -> Any:
    """
    A profiler for ``level``, not started.

    Raises:
        UnavailableError: the level needs an accelerator and there is none.
    """
    activity = _torch.profiler.ProfilerActivity
    device = []
    if torch.cuda.is_available():
        device.append(activity.CUDA)
    elif hasattr(torch, "xpu") and torch.xpu.is_available():
        device.append(activity.XPU)
    if level is Level.DEVICE and not device:
        raise UnavailableError("level device needs an accelerator, and torch sees none")
    full = level is Level.FULL
    config = _torch._C._profiler._ExperimentalConfig
    options = {"profile_all_threads": all_threads}
    # Halves the time of stop(); stacks need what it leaves out.
    if not full and "trace_only" in (config.__init__.__doc__ or ""):
        options["trace_only"] = True
    return _torch.profiler._KinetoProfile(
        activities=device if level is Level.DEVICE else [activity.CPU, *device],
        record_shapes=full,
        profile_memory=full,
        with_stack=full,
        experimental_config=config(**options),
    )


def start(session: Any, *, annotations_only: bool) -> None:
    """
    Start ``session`` on this thread; with ``annotations_only`` operators cost nothing.
    """
    _starting.ours = True
    try:
        session.prepare_trace()
    finally:
        _starting.ours = False
    _prepared.discard(session.profiler)
    if annotations_only:
        session.profiler._start_trace = lambda: _start_annotations(session.profiler)
    session.start_trace()


def tell_no_more(session: Any) -> None:
    """
    From now on ``session`` learns of nothing that begins; what has begun may still end.
    """
    with _quiet():
        session.toggle_collection_dynamic(False, [_torch.profiler.ProfilerActivity.CPU])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """
    Keep torch's C++ side from warning, in a block of microseconds: it takes what is on purpose here for a mistake.

    Python's warnings and everybody's standard error are as they were; a torch without that switch goes on warning.
    """
    try:
        core = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        threshold = ctypes.c_int.in_dll(core, "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        yield
        return
    before = threshold.value
    threshold.value = max(before, ONLY_ERRORS)
    try:
        yield
    finally:
        threshold.value = before


def has_distributed_info(session: Any) -> bool:
    """
    Whether torch has written ``distributedInfo``; twice would not be JSON.
    """
    return bool(session._get_distributed_info())


def is_empty(session: Any) -> bool:
    """
    Whether a stopped session holds nothing: exporting such a one kills the process.
    """
    results = session.profiler.kineto_results
    return not results or not results.trace_start_ns()


def _start_annotations(profiler: Any) -> None:
    """
    What torch's own start does, with callbacks for annotations alone.
    """
    _torch.autograd.profiler._run_on_profiler_start()
    scopes = {_torch._C._profiler.RecordScope.USER_SCOPE}
    _torch.autograd._enable_profiler(profiler.config(), profiler.kineto_activities, scopes)
    profiler.profiling_start_time_ns = time.perf_counter_ns()
