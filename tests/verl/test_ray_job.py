"""
A verl job of several processes on two nodes, with the real sidecar: what a person finds after it.

Its last two steps lose what can be lost: the sidecar in one, a node and a worker in the other.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.jobs import FINAL, SETTLE_DEADLINE, eventually
from tests.verl.running import BOUNDARY_SECONDS, program

CLI = ("-m", "stepscope_sidecar.cli")
SELECTED = (2, 3)
SIDECAR_LOST, NODE_LOST = 4, 5
MINI_BATCHES, SAMPLES = 4, 2
ROLES = ("trainer", "actor", "rollouter")

Spans = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    Where five steps of four mini-batches were to be run and recorded.
    """
    place = tmp_path_factory.mktemp("ray")
    job = (sys.executable, "-m", "tests.verl.ray_job", str(NODE_LOST), str(MINI_BATCHES), str(place / "checkpoints"))
    done = program(
        place,
        *CLI,
        "run",
        "--",
        *job,
        STEPSCOPE_DIR=str(place / "runs"),
        STEPSCOPE_BOUNDARY_SECONDS=BOUNDARY_SECONDS,
        STEPSCOPE_STEPS=",".join(map(str, (*SELECTED, SIDECAR_LOST, NODE_LOST))),
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert "instrumented" in done.stdout + done.stderr
    assert "lost [13, 16, 17, 18]" in done.stdout, done.stdout[-3000:] + done.stderr[-6000:]
    return place


@pytest.fixture(scope="module")
def listed(folder: Path) -> list[dict[str, Any]]:
    """
    Its windows, once they have ended: what is finished after the run is at idle priority.
    """

    def over() -> list[dict[str, Any]]:
        told = read(folder, "windows")
        return told if {window["state"] for window in told} <= FINAL else []

    return eventually(over, deadline=SETTLE_DEADLINE)


@pytest.fixture(scope="module")
def found(folder: Path) -> Spans:
    """
    Its spans.
    """
    return read(folder, "spans")


def read(folder: Path, command: str) -> list[dict[str, Any]]:
    """
    What the command line says of the run.
    """
    done = program(folder, *CLI, command, "--json", STEPSCOPE_DIR=str(folder / "runs"))
    found: Spans = json.loads(done.stdout)
    return found


def of(listed: list[dict[str, Any]], step: int) -> dict[str, tuple[str, str]]:
    """
    How the windows of ``step`` ended, by role.
    """
    return {window["role"]: (window["state"], window["reason"]) for window in listed if window["step"] == step}


def test_every_role_has_one_complete_recording_per_selected_step(listed: list[dict[str, Any]]) -> None:
    """
    The actor class of Ray's, a worker that is driven, an asynchronous server: each by its own boundary.
    """
    undisturbed = [window for window in listed if window["step"] in SELECTED]

    assert {(role, step) for role in ROLES for step in SELECTED} == {
        (window["role"], window["step"]) for window in undisturbed
    }
    assert 6 == len(undisturbed)
    assert [("ready", True)] * 6 == [(window["state"], window["complete"]) for window in undisturbed]
    assert all(Path(window["artifact"]).is_file() for window in undisturbed)


def test_windows_outlive_their_sidecar(listed: list[dict[str, Any]]) -> None:
    """
    ``kill -9`` of it: the job goes on to the end of the step, and the one started in its place finishes them.
    """
    assert dict.fromkeys(ROLES, ("ready", "boundary")) == of(listed, SIDECAR_LOST)


def test_a_lost_node_and_a_killed_worker_end_their_windows_and_no_others(listed: list[dict[str, Any]]) -> None:
    """
    verl can't go on without the worker; the window of the trainer ends with the exception that says so.
    """
    lost = ("aborted", "process_lost")

    assert {"trainer": ("ready", "exception"), "actor": lost, "rollouter": lost} == of(listed, NODE_LOST)


def test_every_window_has_an_end_and_a_reason(listed: list[dict[str, Any]]) -> None:
    """
    Four steps of three roles.
    """
    assert 4 * 3 == len(listed)
    assert {window["state"] for window in listed} <= FINAL
    assert all(window["reason"] for window in listed)


def test_nothing_is_lost_of_those_who_live(found: Spans) -> None:
    """
    Every mini-batch up to the loss of the worker, with no sidecar there to take some of them; every sample too, but for
    those that began before their agent loop had heard of a version for as long as it waits for one.
    """
    updates = Counter(span["attributes"]["rl.step"] for span in found if is_of(span, "train.update_actor", "trainer"))
    samples = Counter(span["attributes"]["rl.step"] for span in found if span["name"] == "rollout.sample")
    whole = range(1, NODE_LOST)

    assert {**dict.fromkeys(whole, MINI_BATCHES), NODE_LOST: 2} == updates
    assert 0 < samples.pop(1) <= MINI_BATCHES * SAMPLES
    assert dict.fromkeys((*whole[1:], NODE_LOST), MINI_BATCHES * SAMPLES) == samples
    assert [*whole, NODE_LOST] == sorted(span["attributes"]["rl.step"] for span in found if span["name"] == "rl.step")


def test_a_mini_batch_links_to_samples_whose_requests_lie_below_them(found: Spans) -> None:
    """
    Over three processes: the agent loop has the sample, the server its turns, the trainer what was learned from it.
    """
    samples = {span["span_id"]: span for span in found if span["name"] == "rollout.sample"}
    turns = Counter(span["parent_span_id"] for span in found if is_of(span, "rollout.generate", "rollouter"))
    linked = Counter(
        link["span_id"] for span in found if is_of(span, "train.update_actor", "trainer") for link in span["links"]
    )

    assert {("agent_loop", 3)} == {
        (span["attributes"]["rl.role"], span["attributes"]["rl.rank"]) for span in samples.values()
    }
    # A server that is killed takes with it what it had not handed over yet, of the step in which it is.
    whole = [span for span, sample in samples.items() if sample["attributes"]["rl.step"] < NODE_LOST]
    assert {2} == {turns[span] for span in whole}
    assert dict.fromkeys(samples, 1) == {**dict.fromkeys(samples, 1), **linked}
    assert 18 * SAMPLES == linked.total()


def is_of(span: dict[str, Any], name: str, role: str) -> bool:
    """
    Whether it is ``name`` in a process of ``role``.
    """
    return bool(span["name"] == name and span["attributes"]["rl.role"] == role)


def test_a_step_is_one_trace_over_all_processes(found: Spans) -> None:
    """
    Below one root, which the trainer emits.
    """
    spans = [span for span in found if span["attributes"].get("rl.step") == 2]
    (root,) = [span for span in spans if span["name"] == "rl.step"]
    inside = [span for span in spans if span["trace_id"] == root["trace_id"]]
    by_role: dict[str, set[str]] = {}
    for span in inside:
        by_role.setdefault(span["attributes"]["rl.role"], set()).add(span["name"])

    assert {"train.wait_samples", "train.log_prob", "train.update_actor", "weights.publish"} <= by_role["trainer"]
    assert {"train.log_prob", "train.update_actor", "weights.publish", "rl.step.process"} <= by_role["actor"]
    assert {"rollout.generate", "rollout.pause", "rl.step.process"} <= by_role["rollouter"]
    assert {1} == {span["attributes"]["param_version"] for span in inside}
    assert all(span["parent_span_id"] == root["span_id"] for span in inside if span["name"] == "rl.step.process")


def test_a_replica_enters_its_step_when_validation_is_over(found: Spans) -> None:
    """
    After update 2 verl validates; the trainer's process has told the server ahead of it.
    """
    spans = [span for span in found if span["attributes"].get("rl.step") == 3]
    (validation,) = [span for span in spans if span["name"] == "validate"]
    (replica,) = [
        span for span in spans if span["name"] == "rl.step.process" and span["attributes"]["rl.role"] == "rollouter"
    ]

    assert validation["end_unix_ns"] <= replica["start_unix_ns"]
    assert any(
        span["name"] == "rollout.generate"
        and span["attributes"]["rl.bucket"] == "overhead"
        and span["end_unix_ns"] <= replica["start_unix_ns"]
        for span in spans
    )
