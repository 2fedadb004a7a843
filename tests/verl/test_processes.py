"""
The processes that verl drives by remote calls, by verl's own methods: a rollout server and a training worker.
"""

from typing import Any

import pytest

from tests.verl.running import Scenarios, job, spans, steps, windows

RECORDS = "STEPSCOPE_STEPS"

SCENARIOS: Scenarios = {
    "server": {"process": "server", "steps": 3, "environment": {RECORDS: "1,3"}},
    "pauses": {
        "process": "server",
        "steps": 3,
        "pauses": True,
        "twice": True,
        "environment": {RECORDS: "2,3", "STEPSCOPE_CONTINUOUS": "1"},
    },
    "validated": {"process": "server", "steps": 3, "validated": [0, 2], "environment": {RECORDS: "1-3"}},
    "resumed": {"process": "server", "first": 4, "rank": 2, "steps": 6, "environment": {RECORDS: "5"}},
    "sample": {"process": "sample", "environment": {RECORDS: "1"}},
    "worker": {"process": "worker", "steps": 3, "mini_batches": 4, "saves": 3, "environment": {RECORDS: "2,3"}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """
    All scenarios, one after another in one process.
    """
    return job("processes_job", SCENARIOS, tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_nothing_of_verls_fails(runs: dict[str, dict[str, Any]], name: str) -> None:
    """
    The calls answer as they would without us.
    """
    assert "" == runs[name]["failure"]


def test_a_server_takes_part_from_its_first_weights_on(runs: dict[str, dict[str, Any]]) -> None:
    """
    It is the rollouter of its replica's rank, and its step ends before its weights change.
    """
    (told,) = runs["server"]["identities"]

    assert ("rollouter", 0, 0) == (told["role"], told["rank"], told["param_version"])
    assert [("open", 1), ("close", 0, ""), ("open", 3), ("close", 2, "")] == windows(runs["server"])
    assert [1, 2, 3] == steps(runs["server"], "rl.step.process")
    assert 3 == len(spans(runs["server"], "weights.load"))


def test_a_request_across_an_update_says_both_versions(runs: dict[str, dict[str, Any]]) -> None:
    """
    verl interrupts it; its client goes on with another request.
    """
    assert ["completed", "aborted"] * 3 == runs["server"]["said"]
    asked = [span["attributes"] for span in spans(runs["server"], "rollout.generate")]
    assert [0, 0, 1, 1, 2, 2] == [told["param_version"] for told in asked]
    assert {"productive"} == {told["rl.bucket"] for told in asked}
    assert {2} == {told["rl.tokens"] for told in asked}


def test_a_pause_without_an_update_ends_no_step(runs: dict[str, dict[str, Any]]) -> None:
    """
    Nor does a version that is brought a second time: the window goes on, until the weights do change.
    """
    assert [1, 2, 3] == steps(runs["pauses"], "rl.step.process")
    assert [("open", 2), ("extend", 3), ("close", 2, "")] == windows(runs["pauses"])
    assert 6 == len(spans(runs["pauses"], "weights.load"))
    assert {"overhead"} == {
        span["attributes"]["rl.bucket"]
        for name in ("rollout.pause", "rollout.resume")
        for span in spans(runs["pauses"], name)
    }


def test_a_window_begins_when_validation_is_over(runs: dict[str, dict[str, Any]]) -> None:
    """
    Requests of validation lie outside, with the version that they validate.
    """
    run = runs["validated"]
    outside = [span for span in spans(run, "rollout.generate") if span["attributes"]["rl.bucket"] == "overhead"]
    begun = {span["attributes"]["rl.step"]: span["start"] for span in spans(run, "rl.step.process")}

    assert [(0, 1), (2, 3)] == [
        (span["attributes"]["param_version"], span["attributes"]["rl.step"]) for span in outside
    ]
    assert all(span["end"] <= begun[span["attributes"]["rl.step"]] for span in outside)
    assert [("open", 1), ("close", 0, ""), ("open", 2), ("close", 1, ""), ("open", 3), ("close", 2, "")] == windows(run)


def test_a_server_that_joins_late_is_in_the_step_of_its_weights(runs: dict[str, dict[str, Any]]) -> None:
    """
    As in a resumed run: there the first version it hears of is another than 0.
    """
    (told,) = runs["resumed"]["identities"]

    assert ("rollouter", 2, 4, None) == (told["role"], told["rank"], told["param_version"], told["resumed_from"])
    assert [("open", 5), ("close", 4, "")] == windows(runs["resumed"])


def test_a_worker_is_told_its_step_by_the_update(runs: dict[str, dict[str, Any]]) -> None:
    """
    Its window begins with the first work of the step and ends with its part of the update; a checkpoint ends it early.
    """
    run = runs["worker"]
    (told,) = run["identities"]

    assert ("actor", 1, 0) == (told["role"], told["rank"], told["param_version"])
    assert [("open", 2), ("close", 1, ""), ("open", 3), ("close", 2, "not_published")] == windows(run)
    assert [1] * 4 + [2] * 4 + [3] * 4 == steps(run, "train.update_actor")
    assert [3] == [span["attributes"]["param_version"] for span in spans(run, "checkpoint.save")]
    assert [1, 1, 2, 3] == steps(run, "weights.publish")


def test_a_sample_is_one_span_above_its_requests(runs: dict[str, dict[str, Any]]) -> None:
    """
    Also above the one that goes on after an update. Before the trainer has told of a version, it has none.
    """
    run = runs["sample"]
    (found,) = spans(run, "rollout.sample")
    asked = spans(run, "rollout.generate")
    told = found["attributes"]

    assert ("uid_sample_0_7_1", 6, 1.0) == (told["rl.sample.id"], told["rl.tokens"], told["rl.reward"])
    assert (0, 1, 1) == (told["param_version"], told["param_version.end"], told["rl.step"])
    assert [False, False, True, True, True] == [span["parent"] == found["id"] for span in asked]
    assert {found["trace"]} == {span["trace"] for span in asked[2:]}
    assert [0, 0, 0, 0, 1] == [span["attributes"]["param_version"] for span in asked]


def test_a_sample_carries_its_span_to_the_trainer(runs: dict[str, dict[str, Any]]) -> None:
    """
    In what verl leaves empty of a trajectory; the engine sees no more than the ids that verl gives requests.
    """
    run = runs["sample"]
    (found,) = spans(run, "rollout.sample")
    unheard, heard, requests = run["said"]

    assert unheard is None
    assert {"agent_loop": {"traceparent": f"00-{found['trace']}-{found['id']}-01"}} == heard
    assert {32} == {len(request) for request in requests}
