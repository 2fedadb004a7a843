"""
Runs the jobs of this folder in processes of their own, and reads what they write.

pytest's own process imports neither verl nor Ray: their threads and children would outlive a test.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

DEADLINE = 500.0
"""Seconds for a job with ten scenarios: importing verl and starting Ray take minutes where others work too."""

NICENESS = {"RAY_worker_niceness": "0"}
"""Ray gives its workers the least of a busy machine, by default."""

BOUNDARY_SECONDS = "20"
"""Seconds that a step waits for the sidecar's answer, which on a busy machine may be late."""

Scenarios = dict[str, dict[str, Any]]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """
    This process's, with the package and these tests on the path.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("STEPSCOPE_", "RAY_"))}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**inherited, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "TMPDIR": str(folder), **NICENESS, **more}


def program(folder: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """
    Run Python with ``arguments``.
    """
    # Ray's sockets lie below the temporary folder, and a path of a socket is short.
    place = environment(Path("/tmp"), **more)
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        cwd=folder,
        env=place,
    )


def job(module: str, scenarios: Scenarios, folder: Path, **more: str) -> dict[str, dict[str, Any]]:
    """
    Run ``scenarios`` with the job ``module``. What each left, by its name.
    """
    source, target = folder / "scenarios.json", folder / "found.json"
    source.write_text(json.dumps(scenarios))
    # Any setting makes the plugin take hold when verl is imported; each scenario has its own on top.
    settings = {"STEPSCOPE_DIR": str(folder / "runs"), "STEPSCOPE_BOUNDARY_SECONDS": BOUNDARY_SECONDS, **more}
    done = program(folder, "-m", f"tests.verl.{module}", str(source), str(target), **settings)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    found: dict[str, dict[str, Any]] = json.loads(target.read_text())
    return found


def all_runs(module: str, scenarios: Scenarios, folder: Path) -> dict[str, dict[str, Any]]:
    """
    Run ``scenarios`` one after another in one process; a run and the one that resumes it share their checkpoints.
    """
    for name in ("checkpoint", "resumed"):
        scenarios[name]["folder"] = str(folder / "checkpoints")
    return job(module, scenarios, folder)


def windows(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    """
    What was asked of the windows: opened for a step, gone on into one, closed at a version and lacking something.
    """
    return [
        (name, told["version"], told["incomplete"]) if name == "close" else (name, told["step"])
        for name, told in run["windows"]
    ]


def spans(run: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """
    The spans called ``name``, in the order of their beginning.
    """
    return sorted((span for span in run["spans"] if span["name"] == name), key=lambda span: int(span["start"]))


def steps(run: dict[str, Any], name: str) -> list[int]:
    """
    The steps of the spans called ``name``, but for what follows the last update.
    """
    return [span["attributes"]["rl.step"] for span in spans(run, name) if not span["attributes"].get("rl.step.partial")]
