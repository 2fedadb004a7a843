"""
What an earlier session of ``torch.profiler`` left, ours or theirs, ends neither the process nor recording.

Each scenario runs in an interpreter of its own; the exit code is what is asserted.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LIMIT = 180.0
"""Seconds for one scenario: about five to import torch, on a machine that others use too."""

pytest.importorskip("torch")


@pytest.mark.parametrize("level", ["spans", "ops"])
@pytest.mark.parametrize("scenario", ["forked_child_registers", "warmed_inside_and_dropped"])
def test_recording_goes_on(scenario: str, level: str) -> None:
    """
    The program comes to its end, with its own assertions holding.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.torch_leftovers", scenario, level],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert 0 == done.returncode, done.stderr[-3000:]
