"""
Modes of recording, each from its setting to the recording: with a real sidecar and a real torch profiler.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from .jobs import CLI, Job, environment

pytest.importorskip("torch")

LIMIT = 300.0
"""Seconds for one run: about six for each process to import torch on a busy machine, and the finalising."""

TRAINER: dict[str, Any] = {"role": "trainer", "rank": 0}
REPLICA: dict[str, Any] = {"role": "rollouter", "rank": 0}


def run(directory: Path, *processes: dict[str, Any], steps: int, **settings: str) -> Job:
    """
    A run of ``processes`` with the STEPSCOPE_* ``settings`` (without the prefix), to its end.
    """
    told = json.dumps({"steps": steps, "processes": processes})
    done = subprocess.run(
        [*CLI, "run", "--", sys.executable, "-m", "tests.integration.modes_loop", told],
        env=environment(directory, **{f"STEPSCOPE_{name}": value for name, value in settings.items()}),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Job(directory, done.returncode, done.stdout, done.stderr)


def recorded(job: Job, **wanted: object) -> list[dict[str, Any]]:
    """
    The windows that are ready and have these values, by step.
    """
    return [
        window
        for window in job.windows
        if window["state"] == "ready" and all(window[key] == value for key, value in wanted.items())
    ]


def names(window: dict[str, Any]) -> list[str]:
    """
    The names on the timeline of a recording, without the ids of spans.
    """
    with gzip.open(window["artifact"], "rt") as file:
        events = json.load(file)["traceEvents"]
    return [str(event.get("name", "")).partition(" #")[0] for event in events if event.get("ph") == "X"]


def markers(window: dict[str, Any]) -> list[str]:
    """
    The markers of steps in a recording, each once, in order.
    """
    return sorted({name for name in names(window) if name.startswith(("marker_", "between_"))})


def places(windows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """
    Role, rank and step of each.
    """
    return sorted((window["role"], window["rank"], window["step"]) for window in windows)


def test_consecutive_steps_share_a_recording(tmp_path: Path) -> None:
    """
    [1, 2, 5] gives {1, 2} and {5} in each process: with their operators and no others, linked from both steps' traces,
    and nothing missing.
    """
    job = run(tmp_path, TRAINER, REPLICA, steps=6, STEPS="1,2,5", CONTINUOUS="1")
    (step_1, step_5) = recorded(job, role="trainer")
    replicas = recorded(job, role="rollouter")

    spans = {
        (span["attributes"]["rl.role"], span["attributes"]["rl.step"]): span for span in job.named("rl.step.process")
    }
    opened = {
        span["attributes"]["rl.step"]: span
        for span in job.named("profile.opened")
        if span["attributes"]["rl.role"] == "trainer"
    }
    (capture, _) = [span for span in job.named("profile.capture") if span["attributes"]["rl.role"] == "trainer"]
    assert [(1, 2), (5, 5)] == [(window["step"], window["last_step"]) for window in (step_1, step_5)]
    assert [["marker_1", "marker_2"], ["marker_5"]] == [markers(window) for window in (step_1, step_5)]
    assert [(True, "boundary"), (True, "boundary")] == [(w["complete"], w["reason"]) for w in (step_1, step_5)]
    assert [["between_1", "marker_1", "marker_2"], ["marker_5"]] == [markers(window) for window in replicas]
    assert [2, 1] == [names(window).count("rl.step.process") for window in (step_1, step_5)]
    assert {1, 2, 5} == opened.keys()
    assert spans["trainer", 2]["span_id"] == opened[2]["parent_span_id"]
    assert [spans["trainer", step]["span_id"] for step in (1, 2)] == [link["span_id"] for link in capture["links"]]
    assert 2 == capture["attributes"]["profile.last_step"]
    assert "no recording of step" not in job.errors


@pytest.mark.slow
def test_ranks_and_steps_are_selected_as_written(tmp_path: Path) -> None:
    """
    ``every:K@S`` and ``vN`` name steps; a list of ranks by role names processes. The others are listed as denied.
    """
    processes = [{**TRAINER, "rank": rank, "world_size": 3} for rank in range(3)] + [
        {**REPLICA, "rank": rank} for rank in range(2)
    ]
    job = run(tmp_path, *processes, steps=5, STEPS="every:3@1,v2", RANKS="trainer=0-1,rollouter=1")

    expected = [("rollouter", 1, 1), ("rollouter", 1, 3), ("rollouter", 1, 4)]
    expected += [("trainer", rank, step) for rank in (0, 1) for step in (1, 3, 4)]
    assert expected == places(recorded(job))
    assert {("rollouter", 0), ("trainer", 2)} == {
        (window["role"], window["rank"]) for window in job.windows if window["reason"] == "rank_not_selected"
    }
    assert [f"marker_{window['step']}" for window in recorded(job)] == [markers(window)[0] for window in recorded(job)]


def test_each_role_has_its_own_profiler(tmp_path: Path) -> None:
    """
    One that comes with stepscope, and one that the program registers.
    """
    processes = [TRAINER, {**REPLICA, "tool": "x-notes"}, {**REPLICA, "rank": 1}]
    job = run(tmp_path, *processes, steps=2, STEPS="2", RANKS="all", TOOLS="trainer=torch,rollouter=x-notes")
    (trainer,) = recorded(job, role="trainer")
    (replica,) = recorded(job, role="rollouter")
    (other,) = [window for window in job.windows if window["state"] != "ready"]

    assert ("torch", "x-notes", 0) == (trainer["tool"], replica["tool"], replica["rank"])
    assert "on\n" == Path(replica["artifact"]).read_text()
    assert ("denied", "tool_unavailable", 1) == (other["state"], other["reason"], other["rank"])


def test_what_a_person_changes_while_the_run_goes_on_holds_at_once(tmp_path: Path) -> None:
    """
    A step that was named late is recorded, one that was taken out is not; the trace tells of it.
    """
    told = {"step": 2, "call": ["profile", "--steps", "1,4"], "selects": 4}
    job = run(tmp_path, {**TRAINER, "change": told}, steps=4, STEPS="3")
    (span,) = [span for span in job.named("rl.step.process") if span["attributes"]["rl.step"] == 2]

    assert [("trainer", 0, 4)] == places(recorded(job))
    assert [("selection.changed", "1,4", "api")] == [
        (event["name"], event["attributes"]["rl.selection.steps"], event["attributes"]["rl.selection.source"])
        for event in span["events"]
    ]
    assert "selected steps 1 cannot occur any more: step 2 has begun" in job.errors


@pytest.mark.parametrize(
    ("level", "what", "settings", "reason"),
    [
        ("spans", {"looks": 60}, {"CAP_SECONDS": "2"}, "cap_seconds"),
        ("ops", {"looks": 60}, {"CAP_SECONDS": "2"}, "cap_seconds"),
        ("spans", {"marks": 100, "looks": 12}, {"CAP_BYTES": "30000"}, "cap_bytes"),
        ("spans", {"keep": 100, "looks": 12}, {"CAP_MEMORY": "200M"}, "memory_guard"),
        ("ops", {"keep": 100, "looks": 12}, {"CAP_MEMORY": "200M"}, "memory_guard"),
    ],
)
def test_a_cap_ends_a_window_early_and_keeps_it(
    tmp_path: Path, level: str, what: dict[str, Any], settings: dict[str, str], reason: str
) -> None:
    """
    It says so, what it holds is its step's, and the next step is recorded like any other.
    """
    job = run(tmp_path, {**TRAINER, **what}, steps=2, STEPS="1-2", LEVEL=level, **settings)

    assert [(1, reason, False, "capped"), (2, reason, False, "capped")] == [
        (window["step"], window["reason"], window["complete"], window["incomplete_reason"]) for window in recorded(job)
    ]
    assert [["marker_1"], ["marker_2"]] == [markers(window) for window in recorded(job)]


def test_a_cap_on_bytes_counts_operators_by_the_pace_of_the_last_recording(tmp_path: Path) -> None:
    """
    The first one shows how fast they come; the second ends early.
    """
    what = {**TRAINER, "burst": 4000, "looks": 12}
    job = run(tmp_path, what, steps=2, STEPS="1-2", LEVEL="ops", CAP_BYTES="1M")

    assert [(1, "boundary", True), (2, "cap_bytes", False)] == [
        (window["step"], window["reason"], window["complete"]) for window in recorded(job)
    ]


def test_one_device_is_recorded_by_one_process_at_a_time(tmp_path: Path) -> None:
    """
    Of two processes on one device one is denied; one on another device is not, nor is anybody once it is over.
    """
    processes = [
        {**TRAINER, "device_ids": ["gpu-0"]},
        {**REPLICA, "device_ids": ["gpu-0", "gpu-1"]},
        {**REPLICA, "rank": 1, "device_ids": ["gpu-2"]},
    ]
    job = run(tmp_path, *processes, steps=2, STEPS="1-2", RANKS="all")

    for step in (1, 2):
        denied = [window for window in job.windows if window["step"] == step and window["state"] == "denied"]
        assert ["busy_device"] == [window["reason"] for window in denied]
        assert ("rollouter", 1, step) in places(recorded(job))
        assert 2 == len(recorded(job, step=step))


@pytest.mark.parametrize("level", ["spans", "ops"])
def test_a_replicas_profiler_can_stop_after_the_update(tmp_path: Path, level: str) -> None:
    """
    The update then waits for no stop; the recording says that it holds more than its step, and no span of the update is
    on its timeline as one of the step's.
    """
    job = run(tmp_path, TRAINER, REPLICA, steps=4, STEPS="2", LEVEL=level, REPLICA_STOP="after")
    (window,) = recorded(job, role="rollouter")
    (load,) = [span for span in job.named("weights.load") if span["attributes"]["rl.step"] == 2]

    assert ("boundary", False, "closed_late") == (window["reason"], window["complete"], window["incomplete_reason"])
    assert window["closed_unix_ns"] <= load["start_unix_ns"]
    assert "weights.load" not in names(window)
    assert ["between_2", "marker_2"] == markers(window)
    assert recorded(job, role="trainer", complete=True)
