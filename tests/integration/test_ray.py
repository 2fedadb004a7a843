"""
Programs on a real Ray: whose child each call is, which step its worker is in, and what is recorded there.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import ray_cluster
from tests.integration.jobs import Job
from tests.integration.programs import check_finished, marks, run_program
from tests.integration.ray_told import KINDS

pytest.importorskip("ray")

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """
    A Ray that runs already.
    """
    with ray_cluster.running() as found:
        yield found


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory, address: str) -> Job:
    """
    Every kind of call, in two steps; nothing is recorded.
    """
    job = run_program(tmp_path_factory.mktemp("contexts"), "tests.integration.ray_contexts", RAY_ADDRESS=address)
    assert 0 == job.code, job.errors
    return job


def one(job: Job, name: str, step: int) -> dict[str, Any]:
    """
    The span ``name`` of ``step``.
    """
    (found,) = [span for span in job.named(name) if span["attributes"]["rl.step"] == step]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_work_lies_below_its_call_and_in_its_step(contexts: Job, kind: str) -> None:
    """
    Methods plain, static, asynchronous, threaded and streaming; tasks; actors that call actors; placement groups.
    """
    assert {1: KINDS[kind], 2: KINDS[kind]} == Counter(
        span["attributes"]["rl.step"] for span in contexts.named(f"work.{kind}")
    )
    for span in contexts.named(f"work.{kind}"):
        caller = one(contexts, f"call.{kind}", span["attributes"]["rl.step"])
        assert (caller["trace_id"], caller["span_id"]) == (span["trace_id"], span["parent_span_id"])
        assert span["attributes"]["rl.role"] != "trainer"


@pytest.mark.parametrize("kind", ["inner", "nested-task"])
def test_a_nested_call_lies_below_the_one_that_it_was_made_in(contexts: Job, kind: str) -> None:
    """
    An actor's own actor, and a task of an actor's.
    """
    assert 2 == len(contexts.named(f"work.{kind}"))
    for span in contexts.named(f"work.{kind}"):
        outer = one(contexts, "work.outer", span["attributes"]["rl.step"])
        assert (outer["trace_id"], outer["span_id"]) == (span["trace_id"], span["parent_span_id"])


def test_what_a_constructor_does_lies_below_who_made_the_actor(contexts: Job) -> None:
    """
    Also where a placement group or another actor has its place in between.
    """
    (made,) = contexts.named("made")

    assert {"plain", "threaded", "placed", "inner"} == {
        span["name"].removeprefix("made.") for span in contexts.spans if span["name"].startswith("made.")
    }
    for role in ("plain", "threaded", "placed"):
        assert [made["span_id"]] == [span["parent_span_id"] for span in contexts.named(f"made.{role}")]


def test_a_worker_that_ray_uses_again_is_another_process_of_the_run(contexts: Job) -> None:
    """
    Tasks of two roles in one worker: each has its own role, rank and part of the step.
    """
    pids = {row["task"] for row in contexts.rows if "task" in row}
    roles = ("task-role", "other-task-role")
    processes = [span for span in contexts.named("rl.step.process") if span["attributes"]["rl.role"] in roles]

    assert 1 == len(pids)
    assert {(role, step) for role in roles for step in (1, 2)} == {
        (span["attributes"]["rl.role"], span["attributes"]["rl.step"]) for span in processes
    }
    assert not any(span["attributes"].get("rl.step.partial") for span in processes)


def test_the_workers_have_nothing_to_complain_of(contexts: Job) -> None:
    """
    No traceback, no context that could not be detached.
    """
    assert [[]] == [row["complaints"] for row in contexts.rows if "complaints" in row]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, address: str) -> Job:
    """
    Three workers without a loop of their own, recorded in every step.
    """
    pytest.importorskip("torch")
    job = run_program(
        tmp_path_factory.mktemp("windows"),
        "tests.integration.ray_windows",
        STEPSCOPE_STEPS="every:1",
        STEPSCOPE_RANKS="learner=0,rollout=0,reward=0",
        RAY_ADDRESS=address,
    )
    assert 0 == job.code, job.errors
    return job


@pytest.mark.parametrize(
    ("role", "done"), [("learner", ("train", "publish")), ("rollout", ("generate",)), ("reward", ("score",))]
)
def test_a_driven_worker_records_its_part_of_each_step_and_nothing_else(
    recorded: Job, role: str, done: tuple[str, ...]
) -> None:
    """
    One window a step, whole: with the hand-over of the weights, without their loading, without the step after.
    """
    windows = sorted((item for item in recorded.windows if item["role"] == role), key=lambda item: int(item["step"]))

    assert [(step, step - 1, "ready", "boundary", True, "spans") for step in (1, 2, 3)] == [
        tuple(window[key] for key in ("step", "param_version", "state", "reason", "complete", "level"))
        for window in windows
    ], json.dumps(windows, indent=1)
    for window in windows:
        assert {f"{what} {window['step']}" for what in done} == marks(window)


def test_driven_windows_are_linked_like_any_other(recorded: Job) -> None:
    """
    To the worker's part of the step, in the trace of the step.
    """
    check_finished(recorded)
    traces = {span["attributes"]["rl.step"]: span["trace_id"] for span in recorded.named("rl.step")}
    for span in recorded.named("rl.step.process"):
        assert traces[span["attributes"]["rl.step"]] == span["trace_id"]


def test_the_load_is_work_of_the_step_that_it_ends(recorded: Job) -> None:
    """
    Its span is in that step's trace, after the worker's part of it; the first load is in step 1.
    """
    loads = {span["attributes"]["rl.step"]: span for span in recorded.named("work.load")}
    parts = {
        span["attributes"]["rl.step"]: span
        for span in recorded.named("rl.step.process")
        if span["attributes"]["rl.role"] == "rollout"
    }

    assert 4 == len(recorded.named("work.load"))
    assert {1, 2, 3} == set(loads) == set(parts)
    for step in (2, 3):
        assert int(parts[step]["end_unix_ns"]) <= int(loads[step]["start_unix_ns"])
