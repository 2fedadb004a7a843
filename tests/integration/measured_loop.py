"""
A run like the demo's that costs seconds: two ranks of a trainer and a rollouter, each a process, without torch.

Run as ``python -m tests.integration.measured_loop [--slow SECONDS] [--work SECONDS]``. The profiler is a stand-in that
takes so long to stop. Work is waiting, and takes what is said by the clock of the spans alone. Begins its steps when a
line comes on standard input, and goes on until that ends.
"""

import argparse
import multiprocessing
import sys
import threading
import time
from multiprocessing.connection import Connection

from opentelemetry.sdk import trace

import stepscope
from stepscope.profilers import Recording, Request
from tests.unit.stepscope.fake_profiler import FakeProfiler

WORK = 0.05
"""Seconds of work in a step."""

SLOW = 0.5
"""Seconds that stopping takes: ten times the work of a step."""

TICK = 1_000
"""Nanoseconds between two readings of a clock at rest."""


class Clock:
    """
    The clock of the spans. It goes on with the work, by what that is meant to take: a busy machine leaves no trace.
    """

    def __init__(self) -> None:
        self._now = time.time_ns()
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """
        The time now.
        """
        return self.advance(TICK)

    def advance(self, nanoseconds: int) -> int:
        """
        Go on; the time then.
        """
        with self._lock:
            self._now += nanoseconds
            return self._now


CLOCK = Clock()


class SlowStandIn(FakeProfiler):
    """
    A stand-in for a profiler that takes its time to stop.
    """

    def __init__(self, *, seconds: float) -> None:
        super().__init__("x-slow")
        self._seconds = seconds

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop, after a while.
        """
        super().stop(request, keep=keep)
        threading.Event().wait(self._seconds)
        (request.folder / "recording.bin").write_bytes(b"recorded")
        return Recording(artifact="recording.bin" if keep else "", stall={"stop": self._seconds})


def work(share: float, meant: float) -> None:
    """
    Take this share of a step's work, which is meant to take ``meant`` seconds.
    """
    threading.Event().wait(WORK * share)
    CLOCK.advance(int(meant * share * 1e9))


def train(rank: int, version: int, meant: float) -> None:
    """
    One step of a trainer that makes ``version``.
    """
    with stepscope.span("train.wait_samples", bucket="idle"):
        work(0.05, meant)
    attributes = {"rl.mini_batch": 0, "rl.samples": 4, "rl.reward": 0.5}
    with stepscope.span("train.update_actor", bucket="productive", attributes=attributes):
        work(1.0, meant)
        if rank == 0:
            # A stand-in for what comes with samples: the spans that generated them.
            carrier = stepscope.inject()
            rows = [(f"{version}-{number}", max(0, version - 2), version - 1, carrier) for number in range(4)]
            stepscope.consumed(mini_batch=0, rows=rows)
    with stepscope.span("weights.publish", bucket="overhead"):
        work(0.05, meant)


def generate(meant: float) -> None:
    """
    One step of a rollouter.
    """
    with stepscope.span("rollout.generate", bucket="productive", attributes={"rl.samples": 4}):
        work(1.0, meant)


def member(role: str, rank: int, seconds: float, meant: float, link: Connection) -> None:
    """
    One process of the run.
    """
    trace.time_ns = CLOCK  # type: ignore[attr-defined]  # what spans take their times from
    stepscope.init(role=role, rank=rank, world_size=2 if role == "trainer" else 1)
    stepscope.register_profiler(SlowStandIn(seconds=seconds))
    link.send("here")
    link.recv()
    version = 0
    while not link.poll():
        version += 1
        with stepscope.step():
            if role == "trainer":
                train(rank, version, meant)
            else:
                generate(meant)
            stepscope.weights_published(version)
    stepscope.shutdown()


def main() -> None:
    """
    All processes, as told.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", type=float, default=SLOW)
    parser.add_argument("--work", type=float, default=WORK)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    processes, links = [], []
    for role, rank in (("trainer", 0), ("trainer", 1), ("rollouter", 0)):
        ours, theirs = context.Pipe()
        process = context.Process(target=member, args=(role, rank, options.slow, options.work, theirs))
        process.start()
        theirs.close()
        processes.append(process)
        links.append(ours)
    for link in links:
        link.recv()
    sys.stdin.readline()
    for link in links:
        link.send("go")
    sys.stdin.readline()
    for link in links:
        link.send("end")
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
