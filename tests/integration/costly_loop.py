"""
A trainer that knows what profiling costs it: its profiler is a stand-in that sleeps, and costs nothing else.

Run as ``python -m tests.integration.costly_loop STEPS MORE``. In a window each mini-batch sleeps SLOWER longer, and
the window's end sleeps STOPPING. After STEPS it prints what was worked and what profiling took, by its own clock; once
a line comes on standard input it does MORE steps.
"""

import json
import sys
import threading
import time

import stepscope
from stepscope.profilers import Armed, Recording, Request
from tests.unit.stepscope.fake_profiler import FakeProfiler

MINI_BATCHES = 4

WORK = 0.15
"""Seconds of a mini-batch."""

SLOWER = 0.12
"""Seconds longer in a window: large beside what a busy machine adds to a sleep."""

STOPPING = 0.4
"""Seconds: large beside what asking for a window takes."""

WAITS = (0.0, 0.2, 0.03)
"""Seconds of waiting for samples, in turn: they would show in a figure that has them."""


class SleepingStandIn(FakeProfiler):
    """
    Stands in for a profiler that slows its window down and takes long to stop.
    """

    def __init__(self) -> None:
        super().__init__("x-sleeping")
        self.on = False
        self.worked = self.took = 0.0

    def start(self, request: Request) -> Armed:
        """
        From here on mini-batches are slower.
        """
        self.on = True
        return super().start(request)

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Take a while.
        """
        super().stop(request, keep=keep)
        self.on = False
        self.took += slept(STOPPING)
        (request.folder / "recording.bin").write_bytes(b"recorded")
        return Recording(artifact="recording.bin" if keep else "")

    def mini_batch(self) -> None:
        """
        Work, and what profiling adds to it.
        """
        worked = slept(WORK)
        if self.on:
            self.worked += worked
            self.took += slept(SLOWER)


def slept(seconds: float) -> float:
    """
    Sleep; how long that was.
    """
    before = time.perf_counter()
    threading.Event().wait(seconds)
    return time.perf_counter() - before


def main(steps: int, more: int) -> None:
    """
    All steps.
    """
    stepscope.init(role="trainer", total_steps=steps + more)
    profiler = SleepingStandIn()
    stepscope.register_profiler(profiler)
    for step in range(1, steps + more + 1):
        if step == steps + 1:
            print(json.dumps({"worked": profiler.worked, "took": profiler.took}), flush=True)
            sys.stdin.readline()
        with stepscope.step():
            with stepscope.span("train.wait_samples", bucket="idle", wait_for="samples"):
                slept(WAITS[step % len(WAITS)])
            for number in range(MINI_BATCHES):
                with stepscope.span("train.update_actor", bucket="productive", attributes={"rl.mini_batch": number}):
                    profiler.mini_batch()
            stepscope.weights_published(step)
    stepscope.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
