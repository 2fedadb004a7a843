"""
The tools that run now, each against one process and on behalf of one window.

Owns when a tool is started and stopped, and what its end means for the window. A window's own process may have chosen
the tool, and tells of its boundaries as ever; or a person named a process beside it, whose window opens and closes with
the other's. Use it in the event loop alone.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from stepscope import wire
from stepscope.names import Incomplete, Reason, State
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar.attach import leftovers, target
from stepscope_sidecar.attach.captures import Capture, Recordings, drive
from stepscope_sidecar.attach.companions import MAX_COMPANIONS, Companion, Companions
from stepscope_sidecar.attach.target import Target
from stepscope_sidecar.attach.tools import AttachedTool
from stepscope_sidecar.errors import AttachError
from stepscope_sidecar.windows import Window

LOG = logging.getLogger(__name__)

LAST_STOP = 3.0
"""Seconds for all tools to write what they have when the sidecar ends."""


class Attachments:
    """
    Runs the tools. The controller tells of windows (see ``seams.Attached``), the API of processes to attach to.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, AttachedTool],
        companions: Companions,
        directory: Path,
        unix_ns: Callable[[], int],
        disk_left: Callable[[], int],
        submit: Callable[[Window, wire.Closed], None],
    ) -> None:
        """
        Begin with nothing running; ``submit`` takes what is to be finalised, ``directory`` is STEPSCOPE_DIR.
        """
        self.companions = companions
        self._tools = tools
        self._offers = {name: tool.unavailable() for name, tool in tools.items()}
        self._directory = directory
        self._unix_ns = unix_ns
        self._disk_left = disk_left
        self._submit = submit
        self._recordings: Recordings | None = None
        self._live: dict[str, Capture] = {}
        self._turns: dict[int, asyncio.Lock] = {}

    def serve(self, recordings: Recordings) -> None:
        """
        Change these windows from now on.
        """
        self._recordings = recordings

    @property
    def running(self) -> int:
        """
        Tools that run, or are about to.
        """
        return len(self._live)

    def offers(self) -> Mapping[str, str]:
        """
        Each tool, and "" or why it cannot be used here.
        """
        return self._offers

    # What the controller tells ----------------------------------------------------------------------------------

    def holds(self, devices: Collection[str], *, process: tuple[int, int]) -> bool:
        """
        Whether a tool is still on one of ``devices``, though its window is over, for another process than this one.
        """
        return self._letting_go(devices, process) is not None

    def started(self, window: Window, message: wire.Started, *, pid: int) -> None:
        """
        The step of ``window`` has begun in process ``pid``, which chose a tool of ours.
        """
        if window.window in self._live:
            return
        if not pid:
            why = "the process is in another pid namespace; share it with the sidecar (shareProcessNamespace, --pid)"
            self._windows.broken(window.window, Reason.TOOL_UNAVAILABLE, why)
            return
        self._begin(window, message, pid=pid)

    def closing(self, window: Window, record: wire.Closed) -> wire.Closed:
        """
        What the close record of ``window`` is: when the tool recorded, and what it leaves.
        """
        capture = self._live.get(window.window)
        if capture is None or window.beside:
            return record
        metadata = {**record.metadata, **_origin(capture, record)}
        return replace(self._times(capture, record), artifact=LEAVES[capture.name], metadata=metadata)

    def finish(self, window: Window, record: wire.Closed) -> bool:
        """
        The window is to be finalised: whether that is done here, once its tool has ended.
        """
        capture = self._live.get(window.window)
        if capture is None:
            return False
        capture.record = record
        capture.over.set()
        return True

    def changed(self, window: Window, *, before: Window | None) -> None:
        """
        A window has changed: what goes along with it does too.
        """
        if (
            window.state is State.RECORDING
            and not window.beside
            and (before is None or before.state is not window.state)
        ):
            for companion in self.companions.of(window.role, window.rank):
                self._accompany(window, companion)
        if not window.leased:
            for capture in [capture for capture in self._live.values() if capture.window.beside == window.window]:
                self._part(capture, window)
        own = self._live.get(window.window)
        if own is not None and window.state.final:
            own.over.set()
        elif own is not None and window.beside and window.state is State.CLOSING:
            self._part(own, window)

    # What a person tells ----------------------------------------------------------------------------------------

    def leased(self, tool: str, *, pid: int, told: tuple[str, ...]) -> tuple[str, ...]:
        """
        The devices that are taken while ``tool`` records process ``pid``: those ``told``, or what the process shows.
        """
        found = self._tools.get(tool)
        return () if found is None or not found.on_device else told or target.devices(pid)

    def attach(self, companion: Companion, *, known: bool) -> None:
        """
        Record ``companion`` from now on, while the window of its registered process is open.

        Raises:
            AttachError: it cannot be; the message says why. ``known`` is whether it is registered itself.
        """
        name, pid = companion.tool, companion.pid
        tool = self._tools.get(name)
        if tool is None:
            usable = ", ".join(sorted(self._tools))
            raise AttachError(f"{name!r} records no process from outside; {usable} do", reason=Reason.TOOL_UNAVAILABLE)
        if self._offers[name]:
            raise AttachError(f"{name}: {self._offers[name]}", reason=Reason.TOOL_UNAVAILABLE)
        Target.open(pid, start=companion.process_start).close()
        if why := tool.obstacle(pid):
            raise AttachError(f"{name} cannot record {why}", reason=Reason.START_ERROR)
        if known:
            why = f"pid {pid} is registered itself; its role's part of STEPSCOPE_TOOLS says what records it"
            raise AttachError(why, reason=Reason.BUSY_PROCESS)
        others = self.companions.all()
        if companion in others:
            return
        for other in others:
            if other.pid == pid or (other.role, other.rank, other.tool) == (companion.role, companion.rank, name):
                where = f"{other.role}-{other.rank}"
                remedy = f"stepscope profile --detach {other.pid}"
                why = f"{other.tool} records pid {other.pid} along with {where} already; {remedy} ends that"
                raise AttachError(why, reason=Reason.DUPLICATE)
        if len(others) >= MAX_COMPANIONS:
            raise AttachError(f"{len(others)} processes are attached to already", reason=Reason.BUSY_PROCESS)
        self.companions.add(companion)

    def detach(self, pid: int) -> Companion:
        """
        Record process ``pid`` no more; what is recorded of it now ends, and is kept.

        Raises:
            AttachError: it is not attached to; the message says what is.
        """
        companion = self.companions.remove(pid)
        if companion is None:
            others = ", ".join(f"{other.pid} (with {other.role}-{other.rank})" for other in self.companions.all())
            raise AttachError(f"pid {pid} is not attached to; {others or 'none'} is", reason=Reason.PROCESS_LOST)
        for capture in list(self._live.values()):
            if capture.window.beside and capture.pid == pid and not capture.over.is_set():
                self._windows.halt(capture.window.window, Reason.STOPPED_BY_USER)
        return companion

    async def close(self) -> None:
        """
        End all tools; they write what they have, and nothing more is finalised here.
        """
        tasks = [capture.task for capture in self._live.values() if capture.task is not None]
        for capture in self._live.values():
            capture.over.set()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LAST_STOP)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # Inside -----------------------------------------------------------------------------------------------------

    @property
    def _windows(self) -> Recordings:
        assert self._recordings is not None, "serve() comes first"
        return self._recordings

    def _letting_go(self, devices: Collection[str], process: tuple[int, int]) -> Window | None:
        for capture in self._live.values():
            window = capture.window
            if capture.tool.on_device and window.process != process and not {*devices}.isdisjoint(window.devices):
                return window
        return None

    def _begin(self, window: Window, message: wire.Started, *, pid: int) -> None:
        folder = self._directory / window.folder
        capture = Capture(window=window, tool=self._tools[window.tool], pid=pid, folder=folder, message=message)
        self._live[window.window] = capture
        capture.task = asyncio.get_running_loop().create_task(self._run(capture), name=f"{window.tool} on pid {pid}")

    def _accompany(self, window: Window, companion: Companion) -> None:
        """
        Open the window of a process beside that of ``window``.
        """
        who = f"{companion.role}-{companion.rank}-{companion.pid}"
        beside = replace(
            window,
            window=f"{window.step:06d}-{who}-{companion.tool}-{secrets.token_hex(3)}",
            pid=companion.pid,
            process_start=companion.process_start,
            tool=companion.tool,
            level="",
            level_fallback="",
            folder=str(Path(window.folder).parents[1] / who / companion.tool),
            devices=companion.devices,
            beside=window.window,
            state=State.OPENING,
            asked_unix_ns=self._unix_ns(),
            opened_unix_ns=0,
            stall={},
        )
        if holder := self._windows.holder(companion.devices) or self._letting_go(companion.devices, beside.process):
            both = ", ".join(sorted({*companion.devices} & {*holder.devices}))
            self._windows.deny(beside, Reason.BUSY_DEVICE, f"{both} is taken by window {holder.window}")
            return
        if self._disk_left() <= 0:
            self._windows.deny(beside, Reason.BUDGET_DISK)
            return
        if not self._windows.add(beside):
            return
        message = wire.Started(
            window=beside.window,
            trace_id=window.trace_id,
            span_id=window.span_id,
            opened_unix_ns=window.opened_unix_ns,
            level="",
        )
        self._begin(beside, message, pid=companion.pid)

    def _part(self, capture: Capture, window: Window) -> None:
        """
        Close the window of a process beside ``window``, which has just ended or, if it is its own, is to.
        """
        if capture.over.is_set():
            return
        stopped = window.window == capture.window.window
        incomplete = Incomplete.STOPPED.value if stopped else window.incomplete_hint
        if window.state is State.ABORTED:
            incomplete = Incomplete.PROCESS_EXIT.value
        # Where the other's profiler failed at its end, that is no reason of this one.
        reason = "" if window.state is State.FAILED else window.reason
        record = wire.Closed(
            window=capture.window.window,
            reason=reason or Reason.BOUNDARY,
            version_at_close=window.param_version if window.version_at_close is None else window.version_at_close,
            opened_unix_ns=capture.message.opened_unix_ns,
            closed_unix_ns=window.closed_unix_ns or self._unix_ns(),
            artifact=LEAVES[capture.name],
            trace_id=capture.message.trace_id,
            span_id=capture.message.span_id,
            level="",
            incomplete=incomplete,
            last_step=window.last_step,
        )
        record = replace(self._times(capture, record), metadata=_origin(capture, record))
        if capture.opened_unix_ns:
            self._windows.recorded(record)
        elif stopped:
            self._windows.lost(capture.window.window, Reason.STOPPED_BY_USER)
        else:
            self._windows.broken(capture.window.window, Reason.NO_ARTIFACT, capture.too_short)
        capture.over.set()

    def _times(self, capture: Capture, record: wire.Closed) -> wire.Closed:
        """
        ``record`` with the times of the tool: those of the process are in the metadata.
        """
        opened = capture.opened_unix_ns
        return replace(record, opened_unix_ns=opened, closed_unix_ns=max(opened, self._unix_ns()) if opened else 0)

    async def _run(self, capture: Capture) -> None:
        # One tool at a time on a process: the next window may begin while the last one's file is written.
        turn = self._turns.setdefault(capture.pid, asyncio.Lock())
        try:
            async with turn:
                await drive(capture, self._windows, unix_ns=self._unix_ns)
            self._settle(capture)
        except AttachError as error:
            LOG.warning("window %s: %s", capture.window.window, error)
            if capture.window.beside and error.reason is Reason.PROCESS_LOST:
                self._windows.lost(capture.window.window, error.reason)
            self._windows.broken(capture.window.window, error.reason, str(error))
        except Exception as error:
            # The window has to end, and the others go on.
            LOG.error("window %s", capture.window.window, exc_info=error)
            self._windows.broken(capture.window.window, Reason.STOP_ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._live.pop(capture.window.window, None)
            if not any(other.pid == capture.pid for other in self._live.values()):
                self._turns.pop(capture.pid, None)

    def _settle(self, capture: Capture) -> None:
        """
        The tool has ended: what it left is finalised, if the window is over and there is something.
        """
        record = capture.record
        if record is None:
            return
        if not capture.opened_unix_ns:
            self._windows.broken(capture.window.window, Reason.NO_ARTIFACT, capture.too_short)
        elif not capture.tool.left(capture.folder):
            nothing = AttachError(f"{capture.name} has written nothing", reason=Reason.NO_ARTIFACT)
            why = capture.trouble or nothing
            self._windows.broken(capture.window.window, why.reason, str(why))
        else:
            leftovers.keep(capture.folder, record)
            self._submit(capture.window, record)


def _origin(capture: Capture, record: wire.Closed) -> dict[str, str]:
    """
    What the recording says of itself; among it when its step began and ended, which is not when the tool did.
    """
    window = capture.window
    return {
        "stepscope.window": window.window,
        "stepscope.step": str(window.step),
        "stepscope.param_version": str(window.param_version),
        "stepscope.role": window.role,
        "stepscope.rank": str(window.rank),
        "stepscope.pid": str(window.pid),
        "stepscope.trace_id": capture.message.trace_id,
        "stepscope.span_id": capture.message.span_id,
        "stepscope.since_unix_ns": str(capture.message.opened_unix_ns),
        "stepscope.until_unix_ns": str(record.closed_unix_ns),
    }
