"""
A window that records: all that its process knows of it until it is closed.

Owns the data and the messages that can be made of it. Guarded by the lock of :mod:`stepscope.slot` where threads meet;
how its profiler starts and stops is :mod:`stepscope.recorder`'s.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepscope import wire
from stepscope.bridge import Bridge, Marker, alive
from stepscope.names import Incomplete
from stepscope.pace import Paces
from stepscope.profilers import AnyProfiler, Armed, Request, anywhere, is_sync
from stepscope.seam import LiveSpans
from stepscope.watchdog import Watch

if TYPE_CHECKING:
    from stepscope.grant import Granted


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
    held: bool = False
    """Its step is over, and what is pending waits until the update is done and work has resumed."""
    resume_by: float | None = None
    """When work must have resumed (monotonic); ``None`` while the update is not done."""
    announced: bool = False
    trace_id: str = ""
    span_id: str = ""
    last_step: int = 0
    """The last step that it covers, where it is shared."""
    lingered: bool = False
    """Its profiler ran on past its last step."""
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

    @property
    def yields_here(self) -> bool:
        """
        Whether this thread may stop its profiler.
        """
        return self.mine or not self.armed.thread_bound

    @property
    def engine_loop(self) -> asyncio.AbstractEventLoop | None:
        """
        The event loop that alone may stop its profiler; ``None`` where that may be done elsewhere.
        """
        return None if is_sync(self.profiler) or anywhere(self.profiler) else self.loop

    def carries(self, step: int) -> bool:
        """
        Whether it may go on into ``step``: it was granted so, nothing is to end it, and this is a thread that may.
        """
        last = self.last_step or self.step
        going = self.grant.continuous and self.announced and not self.pending and self.yields_here
        return going and step in {last, last + 1}

    def due(self, now: float) -> bool:
        """
        Whether it is to end as soon as the right thread comes by: it was told to, or has passed a bound, and does not
        wait for work to resume.
        """
        passed = self.watch.passed()
        if passed and not self.pending:
            self.pending = (passed, Incomplete.CAPPED)
        elif self.held and (passed or (self.resume_by is not None and now >= self.resume_by)):
            self.held = False
        return self.pending is not None and not self.held

    def pause(self, now: float) -> float | None:
        """
        Seconds until it makes sense to look at it again; ``None``: never.
        """
        pause = self.watch.pause()
        if self.resume_by is None:
            return pause
        left = max(0.0, self.resume_by - now)
        return left if pause is None else min(pause, left)

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
            opened_unix_ns=self.opened_unix_ns,
            trace_id=self.trace_id,
            span_id=self.span_id,
            stall=dict(self.stall),
            last_step=self.last_step,
            level_fallback=self.armed.fallback,
        )


def opened(
    granted: "Granted",
    armed: Armed,
    *,
    live_spans: LiveSpans,
    paces: Paces,
    clock: Callable[[], int],
    monotonic: Callable[[], float],
    loop: asyncio.AbstractEventLoop | None,
) -> Opened:
    """
    The window whose profiler was just started, on this thread.
    """
    profiler, marker = granted.profiler, None
    if is_sync(profiler) and armed.marks:
        marker = Marker(enter=profiler.enter, exit=profiler.exit)
    bridge = Bridge(
        marker=marker,
        thread=None if armed.all_threads else threading.get_native_id(),
        live=alive(live_spans),
        clock=clock,
    )
    pace = paces.of(granted.grant.tool, armed.level)
    return Opened(
        grant=granted.grant,
        profiler=profiler,
        request=granted.request,
        armed=armed,
        bridge=bridge,
        watch=Watch(granted.grant.caps, marks=lambda: bridge.marks, pace=pace, clock=monotonic),
        step=granted.asked.step,
        param_version=granted.asked.param_version,
        stall=granted.stall,
        incomplete=Incomplete.OPENED_LATE if granted.asked.late else "",
        opened_unix_ns=clock(),
        loop=loop,
    )
