"""
Finalising a raw recording of 200 MB: what it takes, and what a training step on the same machine feels of it.

The recording is one of torch itself, its events repeated with their times moved on. The step is felt where it is worst:
as many training processes as there are cores. The finaliser is halted and let go on by turns; the figure is the median
over the rounds of the ratio of median steps. For comparison, the same with a finaliser that does not stand back.
"""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import psutil

from stepscope.wire import Closed
from stepscope_sidecar.finaliser import in_child
from stepscope_sidecar.jobs import Job, Result
from tests.bench.machine import describe, table
from tests.integration.jobs import command_of, eventually

TRACE_BYTES = 200_000_000
"""The size that the aim is stated for."""

ROUNDS = 24
SECONDS = 1.0
"""Of each half of a round: short, so that whatever else the machine does falls on both alike."""

SPAN = "00f067aa0ba902b7"

RECORD = f"""
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(8)])
optimizer = torch.optim.AdamW(model.parameters())
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    with record_function("train.update_actor #{SPAN}"):
        for _ in range(20):
            model(torch.randn(4, 32)).sum().backward(); optimizer.step(); optimizer.zero_grad()
profiler.export_chrome_trace(sys.argv[1])
"""
"""Writes a recording at level ops of about 4 MB."""

TRAIN = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)])
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
data = torch.randn(512, 256)
while True:
    began = time.monotonic_ns()
    model(data).square().mean().backward(); optimizer.step(); optimizer.zero_grad()
    print(began, time.monotonic_ns(), flush=True)
"""
"""A steady mini-batch loop that says when each step began and ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Felt:
    """
    Median milliseconds of a step without and with a finaliser at work, and their ratio, over the rounds.
    """

    quiet: float
    busy: float
    ratio: float
    ratios: tuple[float, ...]


def write_trace(path: Path, *, size: int = TRACE_BYTES) -> int:
    """
    Write a valid recording of at least ``size`` bytes to ``path``; how many events it has been made of, copied.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "KINETO_LOG_LEVEL": "99"}
    subprocess.run([sys.executable, "-c", RECORD, str(path)], check=True, env=env, capture_output=True)
    whole = path.read_bytes()
    begin = whole.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    end = whole.rindex(b"]", 0, whole.rindex(b'"traceName"'))
    events = whole[begin:end].rstrip()
    times = [float(text) for text in re.findall(rb'"ts": ([\d.]+)', events)]
    length = max(times) - min(times) + 1
    copies = -(-size // len(events))
    with path.open("wb") as file:
        file.write(whole[:begin] + events)
        for number in range(1, copies):
            file.write(b"," + _moved(events, by=number * length))
        file.write(b"\n  " + whole[end:])
    return copies


def _moved(events: bytes, *, by: float) -> bytes:
    return re.sub(rb'"ts": ([\d.]+)', lambda found: b'"ts": %.3f' % (float(found[1]) + by), events)


def job_for(trace: Path) -> Job:
    """
    The job of finalising ``trace``.
    """
    closed = Closed(
        window="bench",
        reason="boundary",
        version_at_close=1,
        opened_unix_ns=1,
        closed_unix_ns=2,
        artifact=trace.name,
        trace_id="0" * 31 + "1",
        span_id="0" * 15 + "1",
        level="ops",
        mirrored=[SPAN],
        metadata={"stepscope.step": "1", "stepscope.rank": "0"},
    )
    return Job(folder=trace.parent, closed=closed, pid=1)


def finalise_once(trace: Path) -> tuple[Result, float]:
    """
    The result of finalising ``trace`` at this process's priority, and wall seconds.
    """
    began = time.monotonic()
    result = asyncio.run(in_child(job_for(trace), stand_back=False))
    return result, time.monotonic() - began


def step_while_finalising(
    trace: Path, *, processes: int, stand_back: bool = True, rounds: int = ROUNDS, seconds: float = SECONDS
) -> Felt:
    """
    What ``processes`` training loops feel while ``trace`` is being finalised, again and again, beside them.
    """
    with tempfile.TemporaryDirectory() as directory:
        logs = [Path(directory) / str(number) for number in range(processes)]
        loops = []
        for log in logs:
            with log.open("wb") as out:
                loops.append(subprocess.Popen([sys.executable, "-c", TRAIN], stdout=out))
        try:
            _await_steps(logs, loops)
            halves = asyncio.run(_alternate(trace, rounds=rounds, seconds=seconds, stand_back=stand_back))
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        steps = [tuple(map(int, line.split())) for log in logs for line in log.read_text().splitlines()[:-1]]
    medians = [
        [
            statistics.median((ended - began) / 1e6 for began, ended in steps if half[0] <= began and ended <= half[1])
            for half in pair
        ]
        for pair in halves
    ]
    ratios = tuple(busy / quiet for quiet, busy in medians)
    return Felt(
        quiet=statistics.median(quiet for quiet, _ in medians),
        busy=statistics.median(busy for _, busy in medians),
        ratio=statistics.median(ratios),
        ratios=ratios,
    )


def _await_steps(logs: list[Path], loops: "list[subprocess.Popen[bytes]]") -> None:
    def stepped() -> bool:
        assert all(loop.poll() is None for loop in loops), "a training loop ended"
        return all(log.stat().st_size > 2000 for log in logs)

    eventually(stepped)


async def _alternate(
    trace: Path, *, rounds: int, seconds: float, stand_back: bool
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """
    For each round, when its quiet and its busy half began and ended.
    """
    work = asyncio.create_task(_again_and_again(trace, stand_back=stand_back))
    await asyncio.sleep(seconds)
    halves = []
    for _ in range(rounds):
        halted = _finalisers()
        for child in halted:
            child.suspend()
        quiet = await _timed(seconds)
        for child in halted:
            child.resume()
        halves.append((quiet, await _timed(seconds)))
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return halves


def _finalisers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "stepscope_sidecar.finalise" in command_of(child)]


async def _timed(seconds: float) -> tuple[int, int]:
    began = time.monotonic_ns()
    await asyncio.sleep(seconds)
    return began, time.monotonic_ns()


async def _again_and_again(trace: Path, *, stand_back: bool) -> None:
    while True:
        with tempfile.TemporaryDirectory(dir=trace.parent.parent) as folder:
            os.link(trace, Path(folder) / trace.name)
            result = await in_child(job_for(Path(folder) / trace.name), stand_back=stand_back)
            assert result.ready, result.detail


def main() -> None:
    """
    Measure and print.
    """
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace" / "recording.json"
        write_trace(trace)
        raw = trace.stat().st_size
        polite = step_while_finalising(trace, processes=cores)
        rude = step_while_finalising(trace, processes=cores, stand_back=False)
        result, wall = finalise_once(trace)
    assert result.ready, result.detail
    rows: list[tuple[str, ...]] = [
        ("finalising", "MB", "events", "wall s", "CPU s", "peak MB", "packed MB"),
        (
            "torch, level ops",
            f"{raw / 1e6:.0f}",
            str(result.events),
            f"{wall:.1f}",
            f"{result.cpu_seconds:.1f}",
            f"{result.peak_memory / 1e6:.0f}",
            f"{result.bytes / 1e6:.1f}",
        ),
    ]
    felt: list[tuple[str, ...]] = [
        (f"step, {cores} training processes", "quiet ms", "finalising ms", "ratio", "rounds"),
        *(
            (
                name,
                f"{found.quiet:.2f}",
                f"{found.busy:.2f}",
                f"{found.ratio:.3f}",
                f"{min(found.ratios):.3f} to {max(found.ratios):.3f}",
            )
            for name, found in (("as built (aim 1.02)", polite), ("without standing back", rude))
        ),
    ]
    sys.stdout.write(table("Finalising a recording", rows, note=describe("torch", "orjson")))
    sys.stdout.write(table("The trainer's step while it is finalised", felt, note=describe("torch")))


if __name__ == "__main__":
    main()
