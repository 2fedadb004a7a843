"""
A program on Ray that loses workers and its sidecar in the middle of recordings.
"""

from collections import Counter
from typing import Any

import pytest

from tests.integration.jobs import FINAL, Job
from tests.integration.programs import run_program

pytest.importorskip("ray")
pytest.importorskip("torch")

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STEPS = (1, 2, 3, 4)

LOST = (1, "aborted", "process_lost", None)
LEFT = (1, "ready", "process_exit", False)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    Lost are worker 0 to ``ray.kill`` in step 1, worker 1 to ``kill -9`` in step 2, the sidecar to it in step 3.
    """
    return run_program(
        tmp_path_factory.mktemp("losses"),
        "tests.integration.ray_losses",
        STEPSCOPE_STEPS="every:1",
        STEPSCOPE_RANKS="worker=0-2",
    )


def ends(job: Job, rank: int) -> list[tuple[Any, ...]]:
    """
    How the windows of a worker ended, by step.
    """
    keys = ("step", "state", "reason", "complete")
    found = [tuple(window[key] for key in keys) for window in job.windows if window["role"] == "worker"]
    ranks = [window["rank"] for window in job.windows if window["role"] == "worker"]
    return sorted(row for row, of in zip(found, ranks, strict=True) if of == rank)


def test_the_rest_of_the_program_goes_on(job: Job) -> None:
    """
    To its end, with all that was to be done by those who live.
    """
    assert 0 == job.code, job.errors
    assert [{"done": 12}] == job.rows


def test_a_window_of_a_lost_worker_ends_with_it(job: Job) -> None:
    """
    Whoever killed it; those of the steps before are as they were. Ray's own way may be SIGTERM, which a worker heeds.
    """
    assert ends(job, 0) in [[LOST], [LEFT]]
    assert [(1, "ready", "boundary", True), (2, "aborted", "process_lost", None)] == ends(job, 1)


def test_a_window_outlives_its_sidecar(job: Job) -> None:
    """
    It runs on to its own boundary, the sidecar that was started again finishes it, and the next step is recorded too.
    """
    assert [(step, "ready", "boundary", True) for step in STEPS] == ends(job, 2)


def test_no_window_is_left_without_an_end(job: Job) -> None:
    """
    Those that were refused say why as well.
    """
    by_kill = [row[1] for row in ends(job, 0)]
    assert Counter({"denied": 4, "aborted": 1, "ready": 5}) + Counter(by_kill) == Counter(job.states())
    assert job.states().keys() <= FINAL
    assert all(window["reason"] for window in job.windows)


def test_nothing_is_lost_of_those_who_live(job: Job) -> None:
    """
    Neither the spans of the steps in which others were lost, nor those that no sidecar was there to take.
    """
    done = Counter(span["attributes"]["rl.step"] for span in job.named("work") if span["attributes"]["rl.rank"] == 2)
    parts = {
        (span["attributes"]["rl.role"], span["attributes"]["rl.step"])
        for span in job.named("rl.step.process")
        if span["attributes"]["rl.rank"] == (2 if span["attributes"]["rl.role"] == "worker" else 0)
    }

    assert Counter(dict.fromkeys(STEPS, 2)) == done
    assert {(role, step) for role in ("trainer", "worker") for step in STEPS} == parts
    assert list(STEPS) == sorted(span["attributes"]["rl.step"] for span in job.named("rl.step"))
