"""
Attachments with real processes on both sides: a stand-in for a tool, and something for it to record.
"""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepscope import ids, wire
from stepscope.names import Tool
from stepscope_sidecar.attach.attachments import Attachments
from stepscope_sidecar.attach.companions import NAME, Companion, Companions
from stepscope_sidecar.attach.driver import Script, Turn
from stepscope_sidecar.attach.tools import AttachedTool
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.recordings import Recordings
from stepscope_sidecar.seams import World
from stepscope_sidecar.windows import Window

from .rig import FakeLedger, FakeLink, Rig, closed, register, started

DEADLINE = 120.0
"""Seconds for what should happen at once, on a busy machine."""

WELL = """
print("recording", flush=True)
signal.sigwait([signal.SIGINT])
open("recording.speedscope.json", "w").write("{}")
"""
"""A stand-in that does what py-spy does."""


@dataclass
class StandIn:
    """
    A tool that is a small Python program.
    """

    text: str = WELL
    name: Tool = Tool.PY_SPY
    missing: str = ""
    in_the_way: str = ""
    on_device: bool = False

    def unavailable(self) -> str:
        """
        As told.
        """
        return self.missing

    def obstacle(self, pid: int) -> str:
        """
        As told.
        """
        return self.in_the_way

    def script(self, pid: int, *, folder: Path) -> Script:
        """
        The program, with SIGINT held back until it waits for it.
        """
        text = (
            f"import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); pid = {pid}\n{self.text}"
        )
        ready = Turn(until=re.compile("recording"))
        return Script(command=(sys.executable, "-c", text), begin=(ready,), stop=signal.SIGINT)

    def left(self, folder: Path) -> bool:
        """
        Whether the file is there.
        """
        return (folder / "recording.speedscope.json").is_file()


class Ledger(FakeLedger):
    """
    One that wakes whoever waits for a change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def window(self, window: Window, *, before: Window | None) -> None:
        """
        Keep ``window``, and tell.
        """
        super().window(window, before=before)
        self.changed.set()


class Desk:
    """
    Windows and the tools that record them, within one event loop.
    """

    def __init__(self, folder: Path, tool: AttachedTool | None = None, *, tools: str = "py-spy") -> None:
        self.rig = Rig(folder, STEPSCOPE_TOOLS=tools)
        self.folder = folder
        self.ledger = Ledger()
        self.submitted: dict[str, wire.Closed] = {}
        tool = tool or StandIn()
        self.companions = Companions(folder / NAME)
        self.now = 1_000
        self.attachments = Attachments(
            tools={tool.name.value: tool},
            companions=self.companions,
            directory=folder,
            unix_ns=self._clock,
            disk_left=lambda: self.rig.disk,
            submit=self._submit,
        )
        world = World(
            unix_ns=self._clock,
            monotonic=lambda: 0.0,
            record=lambda window: None,
            alive=lambda pid, start: True,
            disk_left=lambda: self.rig.disk,
            overhead=lambda role: None,
            finalise=self._finalise,
            otlp=lambda: "",
            attached=self.attachments,
        )
        self.recordings = Recordings(self.rig.settings, ledger=self.ledger, world=world, node="here")
        self.attachments.serve(self.recordings)
        self.plan = Plan.of(self.rig.settings, environment=self.rig.environment)
        self.link = FakeLink()

    def process(self, pid: int) -> Process:
        """
        A registered process that is really there.
        """
        message = register(pid, process_start=ids.process_start(pid), tools={"torch": "", "py-spy": ""})
        process = Process.of(message, peer=pid, unix_ns=1)
        process.link = self.link
        return process

    def open(self, process: Process, step: int = 5) -> Window:
        """
        A granted window.
        """
        self.recordings.open(process, wire.Open(id=7, step=step, param_version=step - 1), self.plan)
        grant = self.link.last()
        assert isinstance(grant, wire.Grant), grant
        return self.ledger.rows[grant.window]

    def begin(self, process: Process, step: int = 5) -> Window:
        """
        A granted window whose step has begun.
        """
        window = self.open(process, step)
        self.recordings.started(process, started(window.window))
        return window

    def end(self, process: Process, window: Window) -> None:
        """
        The step of ``window`` is over.
        """
        self.recordings.closed(process, closed(window.window))

    async def until(self, look: Callable[[], bool]) -> None:
        """
        Wait until ``look`` says so, after any change.
        """
        async with asyncio.timeout(DEADLINE):
            while not look():
                self.ledger.changed.clear()
                await self.ledger.changed.wait()

    async def state(self, window: Window, *states: str) -> Window:
        """
        ``window`` once it is in one of ``states``.
        """
        await self.until(lambda: self.ledger.rows[window.window].state in states)
        return self.ledger.rows[window.window]

    async def given(self, window: Window) -> wire.Closed:
        """
        The close record with which ``window`` went to the finaliser.
        """
        await self.until(lambda: window.window in self.submitted)
        return self.submitted[window.window]

    async def beside(self, *states: str) -> Window:
        """
        The window of a process beside the registered one, once it is in one of ``states``.
        """

        def found() -> list[Window]:
            return [row for row in self.ledger.rows.values() if row.beside and row.state in states]

        await self.until(lambda: bool(found()))
        return found()[0]

    def companion(self, pid: int, *devices: str) -> Companion:
        """
        Process ``pid``, which works on ``devices``, to be recorded along with rank 0 of the trainer.
        """
        start = ids.process_start(pid)
        return Companion(pid=pid, process_start=start, role="trainer", rank=0, tool="py-spy", devices=devices)

    def _clock(self) -> int:
        self.now += 1_000
        return self.now

    def _submit(self, window: Window, record: wire.Closed) -> None:
        self.submitted[window.window] = record
        self.ledger.changed.set()

    def _finalise(self, window: Window, record: wire.Closed) -> None:
        if not self.attachments.finish(window, record):
            self._submit(window, record)


@contextmanager
def somebody() -> Iterator["subprocess.Popen[bytes]"]:
    """
    A process that does nothing, until the block is left.
    """
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def at_desk(folder: Path, work: Callable[[Desk], Awaitable[None]], tool: StandIn | None = None, **more: str) -> None:
    """
    Do ``work`` at a desk, and end all tools.
    """

    async def whole() -> None:
        desk = Desk(folder, tool, **more)
        try:
            await work(desk)
        finally:
            await desk.attachments.close()
        assert 0 == desk.attachments.running

    asyncio.run(whole())
