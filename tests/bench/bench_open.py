"""
From entering ``step()`` to armed: asking a real sidecar and starting the profiler, with every step selected.

Entering is timed from outside (it also begins the span); the two phases are those that the close records state. What
it does not show: a sidecar under OTLP load.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.machine import describe, table

WARM_UP = 5
"""Steps not counted: the first window in a process imports what the later ones find."""


PRODUCTS = 10
"""Matrix products in a step, some 20 to 50 ms: back to back, windows would compete with their own finalising."""


def main() -> int:
    """
    Run the loop and print the table.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--level", default="spans")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            STEPSCOPE_DIR=folder, STEPSCOPE_STEPS="every:1", STEPSCOPE_LEVEL=chosen.level, STEPSCOPE_RUN="bench"
        )
        entering = loop(chosen.steps)
        phases = records(Path(folder))
    if not phases:
        sys.stderr.write("nothing was recorded: is stepscope[sidecar] installed?\n")
        return 1
    rows: list[tuple[str, ...]] = [("milliseconds", "p50", "p99", "of")]
    rows.append(row("entering step(), span included", entering[WARM_UP:]))
    rows.append(row("to armed: open + start", [phase["open"] + phase["start"] for phase in phases[WARM_UP:]]))
    rows += [row(name, [phase[name] for phase in phases[WARM_UP:]]) for name in ("open", "start", "stop", "export")]
    note = (
        f"aim for armed, without OTLP load: p50 2 ms, p99 5 ms; level {chosen.level}\n{describe('stepscope', 'torch')}"
    )
    print(table("Opening a window", rows, note=note))
    return 0


def loop(steps: int) -> list[float]:
    """
    A loop of short steps, recorded in every step; seconds that entering each took.
    """
    import torch

    import stepscope

    stepscope.init(role="trainer", total_steps=steps)
    entering = []
    x = torch.ones(512, 512)
    for number in range(1, steps + 1):
        step = stepscope.step()
        before = time.perf_counter()
        with step:
            entering.append(time.perf_counter() - before)
            with stepscope.span("train.update_actor"):
                for _ in range(PRODUCTS):
                    x = (x @ x).clamp(0, 1)
            stepscope.weights_published(number)
    stepscope.shutdown()
    return entering


def records(folder: Path) -> list[dict[str, float]]:
    """
    The stall by phase of every window, in the order of steps.
    """
    found = sorted(folder.glob("bench-*/step-*/*/torch/closed.json"))
    return [json.loads(path.read_text())["stall"] for path in found]


def row(name: str, seconds: list[float]) -> tuple[str, ...]:
    """
    One line of the table.
    """
    if len(seconds) < 2:
        return (name, "-", "-", str(len(seconds)))
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return (name, f"{statistics.median(seconds) * 1000:.2f}", f"{cuts[98] * 1000:.2f}", str(len(seconds)))


if __name__ == "__main__":
    raise SystemExit(main())
