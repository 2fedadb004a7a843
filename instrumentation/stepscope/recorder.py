"""
One window of this process, from the profiler's start to its close record.

Owns how a profiler is started and stopped and what its exceptions mean; every function answers with the message that
says how it went. Leaves when that happens, and on which thread, to :mod:`stepscope.windows`.
"""

import asyncio
import time
from collections.abc import Mapping

from stepscope import apart, files, wire
from stepscope.bridge import Marks
from stepscope.complaints import complaints
from stepscope.names import Reason, State
from stepscope.opened import Opened
from stepscope.profilers import (
    AnyProfiler,
    Armed,
    AsyncProfiler,
    ForeignProfilerError,
    LostError,
    NoArtifactError,
    Recording,
    Request,
    UnavailableError,
    anywhere,
    is_sync,
)

ENGINE_DEADLINE = 30.0
"""Seconds for an engine's start or stop: writing its recording takes some; one that hangs must not hold the loop."""

LOOP_DEADLINE = ENGINE_DEADLINE + 1.0
"""Seconds for the same where another thread waits for the engine's event loop, which has to come to it first."""

CANCELLED = "the task was cancelled while the engine's profiler was at it"
"""Why a window ends whose start or stop was awaited by a task that is no more."""

LOOP_GONE = "the event loop that started the engine's profiler has ended, and only it could stop it"
"""Why a window ends whose engine nobody can reach any more."""

MAX_DETAIL = 300
"""Characters of an exception's message that leave the process."""


def start(profiler: AnyProfiler, request: Request, stall: dict[str, float]) -> Armed | wire.Ended:
    """
    Start ``profiler`` on this thread; adds the time it took to ``stall``.
    """
    if not is_sync(profiler):
        if anywhere(profiler):
            return apart.run(astart(profiler, request, stall))
        return ended(request.window, Reason.TOOL_UNAVAILABLE, "this profiler needs the async boundary calls", stall)
    before = time.perf_counter()
    try:
        return profiler.start(request)
    except Exception as error:  # noqa: BLE001 - what a profiler raises must not reach training
        return ended(request.window, _start_reason(error), detail(error), stall)
    finally:
        stall["start"] = time.perf_counter() - before


async def astart(profiler: AnyProfiler, request: Request, stall: dict[str, float]) -> Armed | wire.Ended:
    """
    The same for a profiler whose start is a coroutine.
    """
    if is_sync(profiler):
        return start(profiler, request, stall)
    before = time.perf_counter()
    try:
        return await asyncio.wait_for(_engine(profiler).start(request), ENGINE_DEADLINE)
    except Exception as error:  # noqa: BLE001 - what a profiler raises must not reach training
        return ended(request.window, _start_reason(error), detail(error), stall)
    finally:
        stall["start"] = time.perf_counter() - before


def stop(window: Opened) -> wire.Closed | wire.Ended:
    """
    End the marks, then stop the profiler on this thread, then write the close record.
    """
    if not is_sync(window.profiler) and anywhere(window.profiler):
        return apart.run(astop(window))
    marks = window.bridge.finish()
    if not is_sync(window.profiler):
        leaving = window.reason == Reason.PROCESS_EXIT
        return failed(window, Reason.PROCESS_EXIT if leaving else Reason.STOP_ERROR, LOOP_GONE)
    before = time.perf_counter()
    try:
        recording = window.profiler.stop(window.request, keep=window.announced)
    except Exception as error:  # noqa: BLE001 - what a profiler raises must not reach training
        window.stall["stop"] = time.perf_counter() - before
        return failed(window, _stop_reason(error), detail(error))
    took = time.perf_counter() - before
    # A profiler may say that some of it was no stopping; what it says nothing of has kept the process all the same.
    told = {phase: seconds for phase, seconds in recording.stall.items() if phase != "stop"}
    stopping = max(recording.stall.get("stop", 0.0), took - sum(told.values()))
    window.stall.update({**told, "stop": stopping})
    return _record(window, recording, marks)


async def astop(window: Opened) -> wire.Closed | wire.Ended:
    """
    The same for a profiler whose stop is a coroutine.
    """
    if is_sync(window.profiler):
        return stop(window)
    marks = window.bridge.finish()
    before = time.perf_counter()
    try:
        stopping = _engine(window.profiler).stop(window.request, keep=window.announced)
        recording = await asyncio.wait_for(stopping, ENGINE_DEADLINE)
    except Exception as error:  # noqa: BLE001 - what a profiler raises must not reach training
        return failed(window, _stop_reason(error), detail(error))
    finally:
        window.stall["stop"] = time.perf_counter() - before
    return _record(window, recording, marks)


def forsake(window: Opened, reason: str, why: str) -> wire.Ended:
    """
    Give up a window whose profiler nobody here may stop.
    """
    window.bridge.forsake()
    if is_sync(window.profiler):
        try:
            window.profiler.abandon()
        except Exception as error:  # noqa: BLE001 - nothing more can be done about it
            complaints.fault("abandoning a profiler", error)
    return failed(window, reason, why)


def size(window: Opened, closed: wire.Closed) -> int:
    """
    Bytes of the raw recording that ``window`` left, a file or all that is in a folder; 0 where that cannot be read.
    """
    path = window.request.folder / closed.artifact
    if not closed.artifact or path.is_symlink():
        return 0
    files = path.rglob("*") if path.is_dir() else [path]
    try:
        return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())
    except OSError:
        return 0


def failed(window: Opened, reason: str, why: str) -> wire.Ended:
    """
    The message that ``window`` left no recording.
    """
    return ended(window.grant.window, reason, why, window.stall)


def ended(window: str, reason: str, why: str, stall: Mapping[str, float]) -> wire.Ended:
    """
    The message that a granted window left no recording. A tool that cannot record here is no failure of the window's.
    """
    complaints.warn(f"window:{reason}", "no recording in window %s: %s: %s", window, reason, why)
    state = State.DENIED if reason == Reason.TOOL_UNAVAILABLE else State.FAILED
    return wire.Ended(window=window, state=state, reason=reason, detail=why, stall=dict(stall))


def detail(error: Exception) -> str:
    """
    What ``error`` says, bounded.
    """
    return f"{type(error).__name__}: {error}"[:MAX_DETAIL]


def _record(window: Opened, recording: Recording, marks: Marks) -> wire.Closed | wire.Ended:
    if not window.announced:
        return failed(window, Reason.NOT_STARTED, "its span never began")
    if marks.dropped:
        complaints.warn("marks", "window %s does not list %d of its spans", window.grant.window, marks.dropped)
    closed = wire.Closed(
        window=window.grant.window,
        reason=window.reason,
        version_at_close=window.param_version if window.version is None else window.version,
        opened_unix_ns=window.opened_unix_ns,
        closed_unix_ns=marks.over_unix_ns,
        artifact=recording.artifact,
        trace_id=window.trace_id,
        span_id=window.span_id,
        level=window.armed.level,
        stall=dict(window.stall),
        incomplete=window.incomplete,
        mirrored=marks.mirrored,
        continued=marks.continued,
        metadata=dict(window.metadata),
        last_step=window.last_step,
    )
    try:
        files.replace(window.request.folder / wire.RECORD, wire.encode(closed))
        (window.request.folder / wire.GRANTED).unlink(missing_ok=True)
    except OSError as error:
        # The message still goes out; only a sidecar that is away just now will not learn of the recording.
        complaints.warn("close record", "the record of window %s cannot be written: %s", closed.window, error)
    return closed


def _engine(profiler: AnyProfiler) -> AsyncProfiler:
    return profiler  # type: ignore[return-value]  # the negative of a TypeGuard does not narrow


def _start_reason(error: Exception) -> Reason:
    if isinstance(error, ForeignProfilerError):
        return Reason.FOREIGN_PROFILER
    return Reason.TOOL_UNAVAILABLE if isinstance(error, UnavailableError) else Reason.START_ERROR


def _stop_reason(error: Exception) -> Reason:
    if isinstance(error, ForeignProfilerError):
        return Reason.FOREIGN_PROFILER
    if isinstance(error, NoArtifactError):
        return Reason.NO_ARTIFACT
    if isinstance(error, LostError):
        return Reason.PROCESS_LOST
    return Reason.STOP_TIMEOUT if isinstance(error, TimeoutError) else Reason.STOP_ERROR
