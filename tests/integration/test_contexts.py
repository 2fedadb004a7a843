"""
Wherever a loop runs, a window opens and closes there, or is denied with a reason.
"""

from typing import Any

import pytest

from tests.integration.jobs import Job
from tests.integration.programs import marks, recorded, run_program

pytest.importorskip("torch")
pytest.importorskip("ray")

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    Two steps in every kind of place, all of them selected.
    """
    job = run_program(
        tmp_path_factory.mktemp("contexts"), "tests.integration.contexts", STEPSCOPE_STEPS="every:1", deadline=300.0
    )
    assert 0 == job.code, job.errors
    return job


def said(job: Job, role: str) -> dict[str, Any]:
    """
    What was said of ``role``.
    """
    (row,) = [row for row in job.rows if row["role"] == role]
    return row


def windows(job: Job, role: str) -> list[dict[str, Any]]:
    """
    The windows of ``role`` by step.
    """
    return sorted((item for item in job.windows if item["role"] == role), key=lambda item: int(item["step"]))


def ends(job: Job, role: str) -> list[tuple[int, str, str, str, bool]]:
    """
    Step, level, state, reason and completeness of the windows of ``role``.
    """
    keys = ("step", "level", "state", "reason", "complete")
    return [tuple(window[key] for key in keys) for window in windows(job, role)]


WHOLE = [(1, "spans", "ready", "boundary", True), (2, "spans", "ready", "boundary", True)]
"""Two windows as they should be."""


@pytest.mark.parametrize("role", ["async-actor", "stream", "task", "spawned"])
def test_it_records_as_anywhere(job: Job, role: str) -> None:
    """
    A Ray async actor, a streaming generator, tasks that share a worker, a spawned process.
    """
    assert WHOLE == ends(job, role)
    assert all({role} == marks(window) for window in windows(job, role))


def test_a_threaded_actor_falls_back_to_a_level_that_any_thread_may_stop(job: Job) -> None:
    """
    Already for the first window: its calls come on threads of a pool, and the close may come on any of them.
    """
    first, second = windows(job, "threaded-actor")
    fallbacks = {
        span["attributes"]["rl.step"]: span["attributes"].get("profile.level_fallback")
        for span in job.named("profile.capture")
        if span["attributes"]["rl.role"] == "threaded-actor"
    }

    assert [True, True] == said(job, "threaded-actor")["other_threads"]
    for window in (first, second):
        assert ("ready", "ops", "boundary") == (window["state"], window["level"], window["reason"])
        assert {"threaded-actor"} == marks(window)
    assert {1: "spans", 2: "spans"} == fallbacks


def test_work_in_another_thread_is_in_the_window_of_its_step(job: Job) -> None:
    """
    The loop's window holds the span that ``asyncio.to_thread`` did; and a whole step may be another thread's.
    """
    first, second = windows(job, "to-thread")

    assert ["ready", "ready"] == [first["state"], second["state"]]
    assert ["boundary", "boundary"] == [first["reason"], second["reason"]]
    for window in (first, second):
        spans = [span for span in job.named("work.to-thread") if span["attributes"]["rl.step"] == window["step"]]
        assert 1 == len(spans)
        assert window["opened_unix_ns"] <= spans[0]["start_unix_ns"] <= spans[0]["end_unix_ns"]
        assert spans[0]["end_unix_ns"] <= window["closed_unix_ns"]
        assert on_timeline(window, spans[0]["span_id"])


def on_timeline(window: dict[str, Any], span_id: str) -> bool:
    """
    Whether the span is on the recording's timeline.
    """
    return any(str(event.get("name", "")).endswith(f"#{span_id}") for event in recorded(window)["traceEvents"])


def test_a_forked_child_is_denied_and_harms_nobody(job: Job) -> None:
    """
    It says why it records nothing, it leaves as it chose, and its parent's window is whole.
    """
    row = said(job, "forked")

    assert {"state": "denied", "reason": "forked_child", "window": ""} == row["outcome"]
    assert 0 == row["code"]
    assert [] == windows(job, "forked")
    assert WHOLE[:1] == ends(job, "forking")
    assert {"forking"} == marks(windows(job, "forking")[0])
    assert not job.named("work.forked")
