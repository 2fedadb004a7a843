"""
A run of plain processes with torch, each with a loop of its own: what modes are tried on, without Ray.

Run under ``stepscope run -- python -m tests.integration.modes_loop '{"steps": 5, "processes": [...]}'``. Each process
is an object with ``role``, ``rank`` and, where they matter, ``world_size``, ``device_ids``; in each mini-batch ``keep``
(megabytes), ``marks`` (spans) and ``burst`` (operators); ``looks`` (tenths of a second at the end of each step);
``tool`` (the name of a profiler of its own); ``change`` (a step, in which the command line is called and heeded).

All of them enter and leave each step together. Every step marks its operators ``marker_S``, every update ``between_S``.
"""

import json
import multiprocessing
import subprocess
import sys
import threading
from multiprocessing.synchronize import Barrier
from typing import Any

from stepscope import registration
from stepscope.profilers import Armed, Recording, Request

PATIENCE = 120.0
"""Seconds that a process waits for the others."""

MINI_BATCHES = 3
"""Of each step."""


def mini_batch(step: int, what: dict[str, Any], kept: list[Any]) -> None:
    """
    Work of ``step``, marked with its number.
    """
    import torch

    import stepscope

    with stepscope.span("train.update_actor", bucket="productive", attributes={"rl.samples": 1}):
        with torch.profiler.record_function(f"marker_{step}"):
            torch.ones(8, 8) @ torch.ones(8, 8)
        for _ in range(what.get("burst", 0)):
            torch.ones(2) + 1
        for _ in range(what.get("marks", 0)):
            with stepscope.span("mark"):
                pass
        if megabytes := what.get("keep", 0):
            kept.append(torch.ones(megabytes * 1024 * 1024 // 4))


def between(step: int) -> None:
    """
    What lies between the boundaries: an update, with an operator of its own.
    """
    import torch

    import stepscope

    with stepscope.span("weights.load", bucket="overhead"), torch.profiler.record_function(f"between_{step}"):
        torch.ones(4, 4) @ torch.ones(4, 4)


def looks(what: dict[str, Any]) -> None:
    """
    Wait, with spans, for the watchdog to have looked at the bounds: it does so twice a second.
    """
    import stepscope

    pause = threading.Event()
    for _ in range(what.get("looks", 0)):
        with stepscope.span("train.wait_samples", wait_for="samples"):
            pause.wait(0.1)


class Notes:
    """
    A profiler of the program's own, which writes down that it was on.
    """

    anywhere = True

    def __init__(self, name: str) -> None:
        self.name = name

    def unavailable(self) -> str | None:
        """
        It can always be used.
        """
        return None

    async def start(self, request: Request) -> Armed:
        """
        Begin.
        """
        (request.folder / "notes.txt").write_text("on\n")
        return Armed(level=request.level, marks=False)

    async def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        End.
        """
        return Recording(artifact="notes.txt" if keep else "")


def change(what: dict[str, Any], step: int) -> None:
    """
    Change the selection as a person does, and wait until this process has heard of it.
    """
    told = what.get("change")
    if not told or told["step"] != step:
        return
    said = subprocess.run([sys.executable, "-m", "stepscope_sidecar.cli", *told["call"]], check=True, timeout=PATIENCE)
    assert said.returncode == 0
    session = registration.session
    assert session is not None
    pause = threading.Event()
    while not session.agent.selected(told["selects"]):
        pause.wait(0.02)


def train(what: dict[str, Any], steps: int, together: Barrier) -> None:
    """
    A trainer.
    """
    import stepscope

    kept: list[Any] = []
    for step in range(1, steps + 1):
        together.wait(PATIENCE)
        with stepscope.step():
            for _ in range(MINI_BATCHES):
                mini_batch(step, what, kept)
            looks(what)
            change(what, step)
            together.wait(PATIENCE)
            stepscope.weights_published(step)
        kept.clear()


def roll_out(what: dict[str, Any], steps: int, together: Barrier) -> None:
    """
    A replica.
    """
    import stepscope

    kept: list[Any] = []
    together.wait(PATIENCE)
    stepscope.weights_loaded(0)
    for step in range(1, steps + 1):
        for _ in range(MINI_BATCHES):
            mini_batch(step, what, kept)
        looks(what)
        together.wait(PATIENCE)
        stepscope.weights_loading()
        between(step)
        if step < steps:
            together.wait(PATIENCE)
            stepscope.weights_loaded(step)


def process(what: dict[str, Any], steps: int, together: Barrier) -> None:
    """
    One process of the run, from registering to leaving.
    """
    import torch

    import stepscope

    torch.set_num_threads(1)
    stepscope.init(
        role=what["role"],
        rank=what["rank"],
        world_size=what.get("world_size"),
        device_ids=what.get("device_ids", ()),
        total_steps=steps,
    )
    if "tool" in what:
        stepscope.register_profiler(Notes(what["tool"]))
    (train if what["role"] == "trainer" else roll_out)(what, steps, together)
    stepscope.shutdown()


def main(text: str) -> int:
    """
    Start all processes and wait for them; the highest of their exit codes.
    """
    told = json.loads(text)
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(len(told["processes"]))
    started = [spawn.Process(target=process, args=(what, told["steps"], together)) for what in told["processes"]]
    for one in started:
        one.start()
    for one in started:
        one.join()
    return max(abs(one.exitcode or 0) for one in started)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
