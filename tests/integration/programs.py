"""
Programs of the tests' own, run as a user runs them: under ``stepscope run``, with a real sidecar, until their end.
"""

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.integration.jobs import CLI, Job, environment, eventually

ROOT = Path(__file__).resolve().parents[2]

PROGRAM_DEADLINE = 300.0
"""Seconds for one small program; it takes about ten, most of them to import torch, and far more on crowded cores."""

MARK = "mark "
"""How the annotations begin that a program puts there to be looked for."""


def run_program(directory: Path, *arguments: str, deadline: float = PROGRAM_DEADLINE, **settings: str) -> Job:
    """
    Run ``python -m ARGUMENTS`` to its end; each line of JSON that it prints is a row.
    """
    done = subprocess.run(
        [*CLI, "run", "--", sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**environment(directory, **settings), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return Job(directory, done.returncode, done.stdout, done.stderr, rows=rows)


def settle(job: Job, *, deadline: float = PROGRAM_DEADLINE) -> None:
    """
    Wait for what the sidecar still has to finish after ``stepscope run`` has ended, and for its own end.
    """
    eventually(job.over, deadline=deadline)
    pids = [json.loads(path.read_text())["pid"] for path in job.directory.glob("latest/sidecar.json")]
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), deadline=deadline)


def recorded(window: dict[str, Any]) -> dict[str, Any]:
    """
    The artifact of ``window``, a Chrome trace.
    """
    found: dict[str, Any] = json.loads(gzip.decompress(Path(window["artifact"]).read_bytes()))
    return found


def marks(window: dict[str, Any]) -> set[str]:
    """
    The marks in the recording of ``window``.
    """
    names = {str(event.get("name", "")) for event in recorded(window)["traceEvents"]}
    return {name.removeprefix(MARK) for name in names if name.startswith(MARK)}


def check_finished(job: Job) -> None:
    """
    Every window of ``job`` that opened is ready, its artifact is whole and leads to its span, and a span stands for it.
    """
    captures = {span["attributes"]["profile.window.id"]: span for span in job.named("profile.capture")}
    opened = [window for window in job.windows if window["state"] != "denied"]
    assert {window["window"] for window in opened} == set(captures)
    for window in opened:
        assert "ready" == window["state"], window
        data, trace = Path(window["artifact"]).read_bytes(), recorded(window)
        assert (len(data), hashlib.sha256(data).hexdigest()) == (window["bytes"], window["sha256"])
        assert (window["window"], str(window["step"])) == (trace["stepscope.window"], str(trace["stepscope.step"]))
        assert (window["trace_id"], window["span_id"]) == (trace["stepscope.trace_id"], trace["stepscope.span_id"])
        assert trace["traceEvents"]
        capture = captures[window["window"]]
        assert (window["trace_id"], window["span_id"]) == (capture["trace_id"], capture["parent_span_id"])
        assert ("ready", window["sha256"]) == (
            capture["attributes"]["profile.state"],
            capture["attributes"]["profile.artifact.sha256"],
        )
