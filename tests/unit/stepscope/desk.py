"""
Windows with a stand-in profiler and a stand-in for the way to the sidecar.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from stepscope import wire
from stepscope.profilers import AnyProfiler, Registry
from stepscope.windows import Windows
from tests.unit.stepscope.fake_profiler import FakeProfiler

TRACE, SPAN = "1" * 32, "2" * 16


class Desk:
    """
    The way to a sidecar that answers ``answer``; keeps what it is told.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.caps = wire.Caps()
        self.tool = "torch"
        self.continuous = False
        self.answer: Callable[[], wire.Message | None] = self.grant
        self.told: list[wire.Message] = []
        self.missed: list[str] = []
        self.asked = 0

    def grant(self) -> wire.Message:
        """
        Yes.
        """
        number = self.asked
        return wire.Grant(
            id=1,
            window=f"w{number}",
            tool=self.tool,
            level="spans",
            folder=str(self.folder / f"w{number}"),
            caps=self.caps,
            continuous=self.continuous,
        )

    def ask(self, *, step: int, param_version: int, forced: bool) -> wire.Message | None:
        """
        What the test wants.
        """
        self.asked += 1
        return self.answer()

    def miss(self, *, step: int, param_version: int, reason: str) -> None:
        """
        Keep it.
        """
        self.missed.append(reason)

    def tell(self, message: wire.Message) -> None:
        """
        Keep it.
        """
        self.told.append(message)

    def metadata(self) -> Mapping[str, str]:
        """
        Something.
        """
        return {"stepscope.run": "r"}

    @property
    def closed(self) -> list[wire.Closed]:
        """
        The close records.
        """
        return [message for message in self.told if isinstance(message, wire.Closed)]

    @property
    def ended(self) -> list[tuple[str, str]]:
        """
        State and reason of the windows that left nothing.
        """
        return [(message.state, message.reason) for message in self.told if isinstance(message, wire.Ended)]


class Rig:
    """
    Windows with a stand-in profiler and desk.
    """

    def __init__(self, folder: Path, profiler: AnyProfiler | None = None) -> None:
        self.desk = Desk(folder)
        self.profiler = FakeProfiler()
        self.seconds = 0.0
        self.unix_ns = 1000
        chosen = self.profiler if profiler is None else profiler
        if isinstance(chosen, FakeProfiler):
            self.profiler = chosen
        self.desk.tool = chosen.name
        self.windows = Windows(
            control=self.desk,
            profilers=Registry({"torch": self.profiler, chosen.name: chosen}),
            clock=lambda: self.unix_ns,
            monotonic=lambda: self.seconds,
        )

    def open(self, step: int = 5) -> bool:
        """
        Open, and begin the process's span.
        """
        opened = self.windows.open(step=step, param_version=step - 1)
        if opened:
            self.windows.started(trace_id=TRACE, span_id=SPAN)
        return opened


def elsewhere(work: Callable[[], object]) -> None:
    """
    Do ``work`` on another thread and wait for it.
    """
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
