"""
The main job when things go wrong: killed sidecars, exceptions, signals, stops, resumes, two jobs at once.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from stepscope_sidecar.reader import open_reader
from tests.integration.jobs import JOB_DEADLINE, Job, command_line, eventually, run_job, running
from tests.integration.prometheus import prometheus

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SELECTED_STEPS = range(1, 9)
SMALL = ("--rollouters", "1", "--prompts", "16", "--warmup-steps", "20")
SYNC = ("--sync", *SMALL[2:], "--steps", "8", "--mini-batches-per-step", "2", "--seed", "7")


def sidecar(directory: Path) -> dict[str, Any]:
    """
    What the running sidecar of the newest attempt wrote down.
    """

    def look() -> dict[str, Any] | None:
        for path in directory.glob("*/sidecar.json"):
            if not path.parent.is_symlink():
                found: dict[str, Any] = json.loads(path.read_text())
                return found
        return None

    return eventually(look)


def recording(directory: Path) -> set[str]:
    """
    The ids of the windows that are recording now, from the store: a command would take as long as a step.
    """
    with open_reader(next(path for path in directory.glob("*/stepscope.db") if not path.parent.is_symlink())) as reader:
        return {window.window for window in reader.windows() if window.state == "recording"}


def rewards(job: Job) -> list[float]:
    """
    The reward of each step, exactly as the job printed it.
    """
    assert job.code == 0, job.errors
    return [row["reward"] for row in job.rows if "reward" in row]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """
    The rewards of a synchronous run that never heard of stepscope.
    """
    return rewards(run_job(tmp_path_factory.mktemp("bare"), *SYNC, "--no-stepscope", alone=True))


def test_profiling_does_not_change_the_training(tmp_path: Path, undisturbed: list[float]) -> None:
    """
    A run that is recorded has, to the last bit, the rewards of one without stepscope.
    """
    job = run_job(tmp_path, *SYNC, STEPSCOPE_STEPS="1,3-5", STEPSCOPE_LEVEL="ops")

    assert undisturbed == rewards(job)
    assert {"ready": 8} == job.states()


def test_disabled_means_disabled(tmp_path: Path, undisturbed: list[float]) -> None:
    """
    With STEPSCOPE_DISABLED=1 nothing is started or written, and the training is the same.
    """
    job = run_job(tmp_path, *SYNC, STEPSCOPE_STEPS="2", STEPSCOPE_DISABLED="1")

    assert undisturbed == rewards(job)
    assert [] == list(tmp_path.rglob("stepscope.db"))


def test_a_sidecar_killed_half_way_changes_nothing(tmp_path: Path, undisturbed: list[float]) -> None:
    """
    kill -9 of the sidecar inside a window: the run goes on, a restarted sidecar finishes the window.
    """
    with running(tmp_path, *SYNC, STEPSCOPE_STEPS="1-8", STEPSCOPE_LEVEL="ops") as job:
        job.wait_for_step(2)
        opened = eventually(lambda: recording(tmp_path))
        os.kill(sidecar(tmp_path)["pid"], signal.SIGKILL)
        done = job.end()
    ended = {window["window"]: window for window in done.windows}
    others = [window for name, window in ended.items() if name not in opened]

    assert undisturbed == rewards(done)
    assert {"ready"} == {ended[name]["state"] for name in opened}
    assert {("ready", "boundary"), ("denied", "sidecar_lost")} >= {(w["state"], w["reason"]) for w in others}
    assert len(SELECTED_STEPS) * 2 == len({(w["step"], w["role"]) for w in ended.values()})
    assert set(SELECTED_STEPS) <= {span["attributes"]["rl.step"] for span in done.named("rl.step")}
    assert any("starting it again" in line for line in done.errors.splitlines())


def test_without_a_sidecar_the_run_is_unaffected(tmp_path: Path, undisturbed: list[float]) -> None:
    """
    Where no sidecar can be started, the training is the same and one warning says so.
    """
    job = run_job(
        tmp_path, *SYNC, alone=True, STEPSCOPE_STEPS="2", STEPSCOPE_SOCKET=str(tmp_path / "nobody" / "listens.sock")
    )

    assert undisturbed == rewards(job)
    assert 1 == job.errors.count("the run goes on, selected steps are not recorded"), job.errors


def test_first_and_last_step_are_recorded_and_nothing_after(tmp_path: Path) -> None:
    """
    Steps 1 and last are recorded whole; a selected step that never ends in an update records nothing.
    """
    job = run_job(tmp_path, *SMALL, "--steps", "4", "--mini-batches-per-step", "4", STEPSCOPE_STEPS="1,4,5")
    ready = sorted((window["step"], window["role"]) for window in job.windows if window["state"] == "ready")

    assert 0 == job.code, job.errors
    assert [(1, "rollouter"), (1, "trainer"), (4, "rollouter"), (4, "trainer")] == ready
    assert 4 == len(job.windows)
    assert all(window["complete"] for window in job.windows)


def test_an_exception_in_the_loop_leaves_a_finished_window(tmp_path: Path) -> None:
    """
    The trainer raises inside a recorded step: the job fails, no profiler stays on, what was recorded is kept.
    """
    job = run_job(
        tmp_path, *SMALL, "--steps", "6", "--test-fail-at-step", "3", STEPSCOPE_STEPS="3", STEPSCOPE_LEVEL="ops"
    )
    trainer = [window for window in job.windows if window["role"] == "trainer"]

    assert 0 != job.code
    assert ["ready"] == [window["state"] for window in trainer]
    assert [False] == [window["complete"] for window in trainer]
    assert all(Path(window["artifact"]).exists() for window in trainer)
    assert set(job.states()) <= {"ready"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_finished_windows(tmp_path: Path, number: signal.Signals) -> None:
    """
    Ctrl-C and SIGTERM end the job in order: every window is final, no process is left.
    """
    with running(tmp_path, *SMALL, "--steps", "500", STEPSCOPE_STEPS="every:1", STEPSCOPE_LEVEL="ops") as job:
        job.wait_for_step(2)
        eventually(lambda: recording(tmp_path))
        pid = sidecar(tmp_path)["pid"]
        job.process.send_signal(number)
        done = job.end()

    assert 128 + number == done.code, done.errors
    assert not psutil.pid_exists(pid)
    assert set(done.states()) <= {"ready", "aborted", "denied"}
    assert done.states()["ready"] >= 4


def test_a_resumed_run_starts_no_window_late(tmp_path: Path) -> None:
    """
    Resume at version 3: no window for a step at or below it, other trace ids, and the attempt says where it resumed.
    """
    store = str(tmp_path / "checkpoints")
    first = run_job(
        tmp_path / "a", *SMALL, "--steps", "3", "--checkpoint-every", "3", "--checkpoints", store, STEPSCOPE_STEPS="3-5"
    )
    second = run_job(
        tmp_path / "b",
        *SMALL,
        "--steps",
        "6",
        "--resume",
        "latest",
        "--checkpoints",
        store,
        STEPSCOPE_STEPS="3-5",
    )

    assert (0, 0) == (first.code, second.code), second.errors
    assert {3} == {window["step"] for window in first.windows}
    assert {4, 5} == {window["step"] for window in second.windows}
    assert {"ready": 4} == second.states()
    assert not {span["trace_id"] for span in first.spans} & {span["trace_id"] for span in second.spans}
    assert {3} == {span["resource"].get("rl.resumed_from") for span in second.named("rl.step")}


def test_stop_inside_a_window_and_profile_again(tmp_path: Path) -> None:
    """
    `stepscope stop` closes open windows and denies new ones until `stepscope profile`.
    """
    with running(tmp_path, *SMALL, "--steps", "60", STEPSCOPE_STEPS="every:1", STEPSCOPE_LEVEL="ops") as job:
        job.wait_for_step(2)
        eventually(lambda: recording(tmp_path))
        command_line(tmp_path, "stop")
        at = max(row["step"] for row in job.rows)
        job.wait_for_step(at + 3)
        quiet = recording(tmp_path)
        command_line(tmp_path, "profile", "--steps", "every:1")
        eventually(lambda: recording(tmp_path))
        job.process.send_signal(signal.SIGTERM)
        done = job.end()
    stopped = [
        window for window in done.windows if window["reason"] == "stopped_by_user" and window["state"] == "ready"
    ]

    assert set() == quiet
    assert stopped
    assert {False} == {window["complete"] for window in stopped}


def test_two_jobs_at_once_do_not_meet(tmp_path: Path) -> None:
    """
    The same job twice on one machine at once: separate sidecars, stores, traces and windows.
    """
    arguments = (*SMALL, "--steps", "4", "--mini-batches-per-step", "2")
    with (
        running(tmp_path, *arguments, STEPSCOPE_STEPS="2", STEPSCOPE_RUN="twin") as first,
        running(tmp_path, *arguments, STEPSCOPE_STEPS="3", STEPSCOPE_RUN="twin") as second,
    ):
        codes = (first.end().code, second.end().code)
    folders = sorted(path for path in tmp_path.glob("twin-*"))
    jobs = [Job(tmp_path, 0, "", "", run=folder.name) for folder in folders]

    assert (0, 0) == codes
    assert 2 == len(jobs)
    assert {(2,), (3,)} == {tuple({window["step"] for window in job.windows}) for job in jobs}
    assert not {span["trace_id"] for span in jobs[0].spans} & {span["trace_id"] for span in jobs[1].spans}


@pytest.mark.prometheus
def test_prometheus_scrapes_a_running_job(tmp_path: Path) -> None:
    """
    A real Prometheus scrapes the sidecar during a run: its API gives our values, and exemplars that lead to spans.
    """
    with running(tmp_path, *SMALL, "--steps", "500", STEPSCOPE_STEPS="2", STEPSCOPE_LEVEL="ops") as job:
        job.wait_for_step(4)
        target = sidecar(tmp_path)["http"].removeprefix("http://")
        with prometheus(tmp_path, targets=[target]) as found:

            def value(query: str) -> float:
                # After a scrape that came late there is nothing until the next.
                return eventually(lambda: [one] if (one := found.value(query)) is not None else [], deadline=60)[0]

            ready = 'sum(stepscope_windows_total{outcome="ready",tool="torch"})'
            eventually(lambda: found.value(ready) == 2.0, deadline=JOB_DEADLINE)
            eventually(lambda: value('stepscope_param_version{role="trainer"}') >= 4, deadline=60)
            stall = value('stepscope_profiling_stall_seconds_total{role="trainer",phase="stop"}')
            productive = value('stepscope_bucket_seconds_total{role="trainer",bucket="productive"}')
            idle = value('stepscope_bucket_seconds_total{role="trainer",bucket="idle"}')
            samples = value("stepscope_sample_staleness_versions_count")
            processes = value("sum(stepscope_processes)")
            exemplars = [item["labels"] for item in found.exemplars("stepscope_step_seconds_bucket")]
        job.process.send_signal(signal.SIGTERM)
        done = job.end()
    spans = {(span["trace_id"], span["span_id"]): span for span in done.named("rl.step.process")}
    [window] = [window for window in done.windows if window["role"] == "trainer" and window["state"] == "ready"]

    assert stall == pytest.approx(window["stall_seconds"]["stop"])
    assert productive > 0
    assert idle > 0
    assert samples > 0
    assert processes >= 2
    assert exemplars
    for labels in exemplars:
        assert labels["step"] == str(spans[labels["trace_id"], labels["span_id"]]["attributes"]["rl.step"])
