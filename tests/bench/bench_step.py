"""
An unprofiled step with stepscope installed and no step selected, against the same step without it.

The reference job runs synchronously, so that a step is the same work both ways, alternately with and without; the
figure is the ratio of the median step. The first step of each run is left out.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.machine import describe, table

ROUNDS = 4
STEPS = 16


def step_seconds(directory: str, *arguments: str) -> list[float]:
    """
    Wall seconds of each step but the first of one run of the job.
    """
    command = [sys.executable, "-m", "stepscope_trainer.job", "--json", "--sync", "--steps", str(STEPS), *arguments]
    if "--no-stepscope" not in arguments:
        command = [sys.executable, "-m", "stepscope_sidecar.cli", "run", "--", *command]
    done = subprocess.run(
        command,
        env={**os.environ, "STEPSCOPE_DIR": directory, "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [row["seconds"] for row in rows if row.get("step", 0) > 1]


def main() -> None:
    """
    Measure and print.
    """
    with_it: list[float] = []
    without: list[float] = []
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(ROUNDS):
            bare = step_seconds(directory, "--no-stepscope")
            ours = step_seconds(directory)
            without += bare
            with_it += ours
            ratios.append(statistics.median(ours) / statistics.median(bare))
    rows = [
        ("unprofiled step", "median ms", "steps"),
        ("--no-stepscope", f"{statistics.median(without) * 1e3:.1f}", str(len(without))),
        ("with stepscope", f"{statistics.median(with_it) * 1e3:.1f}", str(len(with_it))),
        ("ratio (median of rounds)", f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}"),
    ]
    sys.stdout.write(table("An unprofiled step (aim 1.01x)", rows, note=describe("torch", "ray", "opentelemetry-sdk")))


if __name__ == "__main__":
    main()
