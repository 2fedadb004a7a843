"""
Profilers that hang, raise or leave nothing useful: training goes on, the window says why, and the metrics count it.
"""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from stepscope import wire
from stepscope_sidecar.rows import WindowRow

from .agent import Agent
from .jobs import FINAL, SETTLE_DEADLINE, command_line, eventually
from .place import Place, placed
from .programs import PROGRAM_DEADLINE, ROOT

pytest.importorskip("torch")

PROGRAM = "tests.integration.failing_profilers"
ENDS = {
    "fine": ("ready", "boundary"),
    "start-hangs": ("failed", "start_error"),
    "start-raises": ("failed", "start_error"),
    "stop-hangs": ("failed", "stop_timeout"),
    "stop-raises": ("failed", "stop_error"),
    "empty": ("failed", "artifact_invalid"),
    "absent": ("failed", "no_artifact"),
    "engine": ("failed", "stop_timeout"),
    "truncated": ("failed", "artifact_invalid"),
}
"""State and reason of the window of step 1, by role."""

DETAILS = {
    "start-hangs": "start has not returned within 15 s",
    "start-raises": "RuntimeError: no such counter",
    "stop-hangs": "stop has not returned within 15 s",
    "stop-raises": "RuntimeError: no such counter",
    "empty": "the recording is empty",
    "absent": "recording.bin",
}


def value(metrics: str, name: str, **labels: str) -> float:
    """
    The value of one series, 0 where there is none.
    """
    for line in metrics.splitlines():
        if line.startswith(f"{name}{{") and all(f'{key}="{text}"' for key, text in labels.items()):
            series, _, number = line.rpartition(" ")
            if all(f'{key}="{text}"' in series for key, text in labels.items()):
                return float(number)
    return 0.0


def counted(metrics: str) -> float:
    """
    How many windows have ended.
    """
    lines = [line for line in metrics.splitlines() if line.startswith("stepscope_windows_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def scrape(place: Place) -> str:
    """
    What Prometheus would read.
    """
    return httpx.get(f"{place.announced()['http']}/metrics", timeout=60, trust_env=False).text


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """
    An attempt with every step selected.
    """
    place = placed(tmp_path)
    place.env["STEPSCOPE_STEPS"] = "every:1"
    place.env["STEPSCOPE_RANKS"] = "all"
    return place


@pytest.mark.slow
def test_training_goes_on_whatever_a_profiler_does(place: Place) -> None:
    """
    Every role gets through both steps; each window of step 1 has ended with its reason, and is counted once.
    """
    from .failing_profilers import TOOLS

    place.env["STEPSCOPE_TOOLS"] = ",".join(f"{role}={tool}" for role, tool in TOOLS.items())

    def final() -> list[WindowRow]:
        rows = place.windows()
        return rows if len(rows) == 2 * len(ENDS) and {row.state for row in rows} <= FINAL else []

    with place.sidecar():
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM],
            cwd=ROOT,
            env=place.env,
            capture_output=True,
            text=True,
            timeout=PROGRAM_DEADLINE,
            check=False,
        )
        assert 0 == done.returncode, done.stderr
        found = eventually(final, deadline=SETTLE_DEADLINE)
        metrics = eventually(lambda: text if counted(text := scrape(place)) == len(found) else "")

    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [{"role": role, "version": 2} for role in ENDS] == rows
    first, second = ({row.role: row for row in found if row.step == step} for step in (1, 2))
    assert ENDS == {role: (row.state, row.reason) for role, row in first.items()}
    for role, detail in DETAILS.items():
        assert detail in first[role].detail
    for role in ("start-hangs", "stop-hangs"):
        assert ("denied", "tool_unavailable") == (second[role].state, second[role].reason)
    for role, (state, _) in ENDS.items():
        count = 1 + (state == second[role].state)
        assert count == value(metrics, "stepscope_windows_total", role=role, tool=TOOLS[role], outcome=state), role


def test_ranks_that_did_not_record_are_listed_and_counted(place: Place) -> None:
    """
    Of three ranks one records, one's profiler fails to start, one is never heard of.
    """
    with place.sidecar():
        with (
            Agent(place.socket, rank=0, world_size=3) as first,
            Agent(place.socket, rank=1, world_size=3, pid=None) as second,
        ):
            for agent in (first, second):
                agent.register()
                agent.send(wire.Version(step=1, param_version=0))
            grant = first.open(1)
            first.send(first.write(grant))
            other = second.answer(wire.Open(id=3, step=1, param_version=0))
            assert isinstance(other, wire.Grant)
            second.send(wire.Ended(window=other.window, state="failed", reason="start_error"))
            for agent in (first, second):
                agent.send(wire.StepClosed(step=1))
                agent.send(wire.Version(step=2, param_version=1))
                agent.send(wire.StepClosed(step=2))
            counted = eventually(
                lambda: value(scrape(place), "stepscope_missing_ranks", role="trainer"), deadline=SETTLE_DEADLINE
            )
        status = httpx.get(f"{place.announced()['http']}/api/status", timeout=60, trust_env=False).json()
        shown = command_line(place.folder, "status", "--run", "run-a1")

    assert 2.0 == counted
    missing = ["step 1 rank 1: start_error", "step 1 rank 2: never_registered"]
    assert {"trainer": missing} == status["missing"]
    for line in missing:
        assert line in shown
