"""
The known ways to kill a process with ``torch.profiler`` cannot be reached through stepscope.

Each scenario runs in an interpreter of its own; the exit code is what is asserted.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LIMIT = 120.0
"""Seconds for one scenario: about five to import torch, two to run, and a machine that others use too."""

pytest.importorskip("torch")

SCENARIOS = (
    "annotations_across_windows",
    "boundary_elsewhere",
    "closed_at_exit",
    "foreign_before",
    "foreign_inside_other_finished",
    "foreign_inside_other_running",
    "foreign_inside_same_finished",
    "foreign_inside_same_running",
    "forked",
    "nested",
    "opener_gone",
    "span_across_windows",
    "spans_across_close",
    "stop_by_sidecar",
    "stop_while_training",
)

SCHEDULES = ("scheduled_and_dropped", "scheduled_between", "scheduled_inside")

FULL = ("annotations_across_windows", "boundary_elsewhere", "spans_across_close", "stop_while_training")
"""At level ``full`` those that crashed before it kept to the opening thread."""


@pytest.mark.parametrize(
    ("scenario", "level"),
    [
        *((scenario, level) for scenario in SCENARIOS for level in ("spans", "ops")),
        *((scenario, "full") for scenario in FULL),
        *((scenario, level) for scenario in SCHEDULES for level in ("spans", "ops")),
    ],
)
def test_survives(scenario: str, level: str) -> None:
    """
    The program comes to its end, with its own assertions holding and nothing from the operating system's side.
    """
    module = "torch_schedules" if scenario in SCHEDULES else "torch_scenarios"
    paths = [str(ROOT / part) for part in ("instrumentation", "sidecar", "trainer", "rollouter")]
    result = subprocess.run(
        [sys.executable, "-m", f"tests.integration.{module}", scenario, level],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert 0 == result.returncode, result.stderr[-2000:]
