"""
Interpreters of their own for programs that may die of what they do.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LIMIT = 600.0
"""Seconds for one scenario: about five to import torch, two to run, and a machine that others use too. Where threads
crowd the main one out, recordings and what it takes to write them grow with it: a minute has been seen."""


def in_interpreter(module: str, scenario: str, level: str) -> tuple[int, str]:
    """
    Run ``scenario`` of a module beside this one at ``level``; its exit code and what it wrote to standard error.
    """
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
    return result.returncode, result.stderr
