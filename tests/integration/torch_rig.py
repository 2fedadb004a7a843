"""
A real agent with a real profiler against a stand-in for the sidecar, for programs that may kill their interpreter.

A module of such programs is run as ``python -m tests.integration.MODULE NAME LEVEL``: the exit code is the result.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from stepscope import wire
from stepscope.agent import Agent
from stepscope.seam import Identity
from stepscope.selection import Selection
from stepscope.settings import Settings
from tests.unit.stepscope.fake_sidecar import FakeSidecar

WINDOWS = int(os.environ.get("STEPSCOPE_TEST_WINDOWS", "12"))
"""Windows of a stress run; careless driving dies within 1 to 11."""

TRACE, SPAN = "1" * 32, "2" * 16


def settings(folder: Path, fake: FakeSidecar) -> Settings:
    """
    Every step, and patience: on a crowded machine an answer takes longer than a boundary would wait for it.
    """
    every = Selection.parse("every:1")
    return Settings(run="r", attempt="a", directory=folder, socket=fake.path, selection=every, boundary_seconds=20.0)


class Rig:
    """
    A real agent against the stand-in, and a process that trains.
    """

    def __init__(self, folder: Path, fake: FakeSidecar) -> None:
        self.fake = fake
        self.agent = Agent.start(settings(folder, fake), Identity(role="trainer"))
        self.windows = self.agent.windows
        self.step = 0
        self.ids = iter(range(1, 1 << 30))

    def open(self) -> bool:
        """
        Enter the next step.
        """
        self.step += 1
        opened = self.windows.open(step=self.step, param_version=self.step - 1)
        self.windows.started(trace_id=TRACE, span_id=SPAN)
        return opened

    def close(self) -> None:
        """
        The boundary of the step.
        """
        self.windows.close(version=self.step)

    @contextmanager
    def span(self, name: str = "train") -> Iterator[int]:
        """
        A span, told as :mod:`stepscope.provider` tells it.
        """
        number = next(self.ids)
        told = self.windows.recording
        if told:
            self.windows.span_started(number, name)
        try:
            yield number
        finally:
            if told or self.windows.recording:
                self.windows.span_ended(number)

    def recording(self, closed: wire.Closed) -> list[dict[str, object]]:
        """
        The events of a raw recording, which must be JSON.
        """
        number = closed.window.removeprefix("w")
        text = (self.fake.folder / f"window-{number}" / closed.artifact).read_text()
        events: list[dict[str, object]] = json.loads(text)["traceEvents"]
        return events

    @contextmanager
    def training(self, count: int = 3) -> Iterator[None]:
        """
        Other threads train, with spans, all the while.
        """
        over = threading.Event()

        def loop() -> None:
            while not over.is_set():
                with self.span("other"):
                    train()

        threads = [threading.Thread(target=loop) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


def train() -> None:
    """
    A forward, a backward and a step of an optimizer.
    """
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(8, 16)).square().sum().backward()
    optimizer.step()


def in_thread(work: Callable[[], object]) -> None:
    """
    Do ``work`` on another thread and wait for it.
    """
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def names(events: list[dict[str, object]]) -> set[str]:
    """
    The names of the spans on a timeline, without their ids.
    """
    return {str(event["name"]).split(" #")[0] for event in events if event.get("cat") == "user_annotation"}


def main(scenario: Callable[[Rig, str], None], level: str) -> None:
    """
    Run ``scenario`` at ``level`` and leave as a program does.
    """
    folder, owner = Path(tempfile.mkdtemp()), os.getpid()
    fake = FakeSidecar(folder / "s", folder, level=level)
    fake.__enter__()
    rig = Rig(folder, fake)
    try:
        scenario(rig, level)
    finally:
        # A forked child unwinds through here too, and what is here is its parent's.
        if os.getpid() == owner:
            rig.agent.close(2.0)
            fake.__exit__(None, None, None)
            shutil.rmtree(folder)


def run(scenarios: Mapping[str, object]) -> None:
    """
    Run the one of ``scenarios`` that the command line names, at its level.
    """
    scenario = scenarios[sys.argv[1]]
    assert callable(scenario)
    main(scenario, sys.argv[2])
