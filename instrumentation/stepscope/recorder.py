"""
One window of this process, from the profiler's start to its close record.

Owns how a profiler is started and stopped and what its exceptions mean; every function answers with the message that
says how it went. Leaves when that happens, and on which thread, to :mod:`stepscope.windows`.
"""

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepscope import wire
from stepscope.bridge import Bridge
from stepscope.complaints import complaints
from stepscope.names import Reason, State
from stepscope.profilers import (
    AnyProfiler,
    Armed,
    AsyncProfiler,
    ForeignProfilerError,
    NoArtifactError,
    Recording,
    Request,
    UnavailableError,
    is_sync,
)
from stepscope.watchdog import Watch

ENGINE_DEADLINE = 30.0
"""Seconds for an engine's start or stop: writing its recording takes some; one that hangs must not hold the loop."""

RECORD = "closed.json"
"""The close record in the window's folder: what a sidecar that was away finds."""

CANCELLED = "the task was cancelled while the engine's profiler was at it"
"""Why a window ends whose start or stop was awaited by a task that is no more."""

MAX_DETAIL = 300
"""Characters of an exception's message that leave the process."""


@dataclass(kw_only=True, eq=False, slots=True)
class Opened:
    """
    A window that records. Mutable: :mod:`stepscope.windows` guards it with its lock.
    """

    grant: wire.Grant
    profiler: AnyProfiler
    request: Request
    armed: Armed
    bridge: Bridge
    watch: Watch
    step: int
    param_version: int
    opened_unix_ns: int
    stall: dict[str, float]
    incomplete: str = ""
    reason: str = ""
    version: int | None = None
    """In force at the boundary, once that has come."""
    pending: tuple[str, str] | None = None
    """Reason, and what will be missing: it is to end as soon as the right thread comes by."""
    announced: bool = False
    trace_id: str = ""
    span_id: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    opener: threading.Thread = field(default_factory=threading.current_thread)
    opener_id: int = field(default_factory=threading.get_native_id)
    """The kernel's, because Python gives the one of a thread that ended to the next."""
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def mine(self) -> bool:
        """
        Whether this is the thread that opened it.
        """
        return self.opener_id == threading.get_native_id()

    def describe(self) -> dict[str, str]:
        """
        What its recording says of itself.
        """
        return {
            "stepscope.window": self.grant.window,
            "stepscope.step": str(self.step),
            "stepscope.param_version": str(self.param_version),
            "stepscope.trace_id": self.trace_id,
            "stepscope.span_id": self.span_id,
        }

    def started(self) -> wire.Started:
        """
        The message that it records.
        """
        return wire.Started(
            window=self.grant.window,
            trace_id=self.trace_id,
            span_id=self.span_id,
            opened_unix_ns=self.opened_unix_ns,
            level=self.armed.level,
            level_fallback=self.armed.fallback,
            stall=dict(self.stall),
        )

    def listed(self) -> wire.OpenWindow:
        """
        The same for a sidecar that comes back.
        """
        return wire.OpenWindow(
            window=self.grant.window,
            step=self.step,
            param_version=self.param_version,
            tool=self.grant.tool,
            level=self.armed.level,
            folder=self.grant.folder,
            opened_unix_ns=self.opened_unix_ns,
            trace_id=self.trace_id,
            span_id=self.span_id,
            stall=dict(self.stall),
        )

    def failed(self, reason: str, detail: str) -> wire.Ended:
        """
        The message that it left no recording.
        """
        return ended(self.grant.window, reason, detail, self.stall)


def start(profiler: AnyProfiler, request: Request, stall: dict[str, float]) -> Armed | wire.Ended:
    """
    Start ``profiler`` on this thread; adds the time it took to ``stall``.
    """
    if not is_sync(profiler):
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


def stop(window: Opened, *, clock_ns: int) -> wire.Closed | wire.Ended:
    """
    End the marks, then stop the profiler on this thread, then write the close record.
    """
    marks = window.bridge.finish()
    if not is_sync(window.profiler):
        return window.failed(Reason.STOP_ERROR, "this profiler needs the async boundary calls")
    before = time.perf_counter()
    try:
        recording = window.profiler.stop(window.request, keep=window.announced)
    except Exception as error:  # noqa: BLE001 - what a profiler raises must not reach training
        window.stall["stop"] = time.perf_counter() - before
        return window.failed(_stop_reason(error), detail(error))
    window.stall.update(recording.stall)
    return _record(window, recording, marks.mirrored, marks.dropped, marks.continued, clock_ns)


async def astop(window: Opened, *, clock_ns: int) -> wire.Closed | wire.Ended:
    """
    The same for a profiler whose stop is a coroutine.
    """
    if is_sync(window.profiler):
        return stop(window, clock_ns=clock_ns)
    marks = window.bridge.finish()
    before = time.perf_counter()
    try:
        stopping = _engine(window.profiler).stop(window.request, keep=window.announced)
        recording = await asyncio.wait_for(stopping, ENGINE_DEADLINE)
    except Exception as error:  # noqa: BLE001 - what a profiler raises must not reach training
        return window.failed(_stop_reason(error), detail(error))
    finally:
        window.stall["stop"] = time.perf_counter() - before
    return _record(window, recording, marks.mirrored, marks.dropped, marks.continued, clock_ns)


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
    return window.failed(reason, why)


def ended(window: str, reason: str, why: str, stall: Mapping[str, float]) -> wire.Ended:
    """
    The message that a granted window left no recording.
    """
    complaints.warn(f"window:{reason}", "no recording in window %s: %s: %s", window, reason, why)
    return wire.Ended(window=window, state=State.FAILED, reason=reason, detail=why, stall=dict(stall))


def detail(error: Exception) -> str:
    """
    What ``error`` says, bounded.
    """
    return f"{type(error).__name__}: {error}"[:MAX_DETAIL]


def _record(
    window: Opened,
    recording: Recording,
    mirrored: list[str],
    dropped: int,
    continued: list[wire.ContinuedSpan],
    closed_unix_ns: int,
) -> wire.Closed | wire.Ended:
    if not window.announced:
        return window.failed(Reason.NOT_STARTED, "its span never began")
    closed = wire.Closed(
        window=window.grant.window,
        reason=window.reason,
        version_at_close=window.param_version if window.version is None else window.version,
        opened_unix_ns=window.opened_unix_ns,
        closed_unix_ns=closed_unix_ns,
        artifact=recording.artifact,
        trace_id=window.trace_id,
        span_id=window.span_id,
        level=window.armed.level,
        stall=dict(window.stall),
        incomplete=window.incomplete,
        mirrored=mirrored,
        mirrored_dropped=dropped,
        continued=continued,
        metadata=dict(window.metadata),
    )
    try:
        _write(window.request.folder / RECORD, wire.encode(closed))
    except OSError as error:
        # The message still goes out; only a sidecar that is away just now will not learn of the recording.
        complaints.warn("close record", "the record of window %s cannot be written: %s", closed.window, error)
    return closed


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(data)
    partial.replace(path)


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
    return Reason.STOP_TIMEOUT if isinstance(error, TimeoutError) else Reason.STOP_ERROR
