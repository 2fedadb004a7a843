"""
verl's V1 trainer ``separate_async`` in its own loop: which spans come, and which windows open and close.
"""

from typing import Any

import pytest

from tests.verl.running import Scenarios, all_runs, spans, steps, windows

RECORDS = "STEPSCOPE_STEPS"

SCENARIOS: Scenarios = {
    "first": {
        "steps": 3,
        "test_freq": 1,
        "save_freq": 2,
        "val_before_train": True,
        "environment": {RECORDS: "1"},
    },
    "last": {"steps": 3, "mini_batches": 4, "environment": {RECORDS: "3"}},
    "two": {"steps": 4, "mini_batches": 4, "test_freq": 2, "environment": {RECORDS: "2,3"}},
    "continuous": {"steps": 4, "environment": {RECORDS: "2,3", "STEPSCOPE_CONTINUOUS": "1"}},
    "adopted": {
        "steps": 4,
        "environment": {"STEPSCOPE_RUN": "r"},
        "overrides": ["global_profiler.steps=[2,3]", "global_profiler.profile_continuous_steps=True"],
    },
    "both": {
        "failure": "ConfigurationError",
        "environment": {RECORDS: "2"},
        "overrides": ["global_profiler.steps=[2,3]"],
    },
    "exception": {
        "steps": 4,
        "mini_batches": 4,
        "fails_in": 6,
        "failure": "OutOfMemoryError",
        "environment": {RECORDS: "2,3"},
    },
    "checkpoint": {"steps": 2, "save_freq": 2, "environment": {RECORDS: "2"}},
    "agents": {"steps": 3, "mini_batches": 2, "agents": True, "environment": {RECORDS: "2"}},
    "resumed": {"steps": 4, "resume": True, "environment": {RECORDS: "2,3"}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """
    All scenarios, one after another in one process.
    """
    return all_runs("v1_job", SCENARIOS, tmp_path_factory.mktemp("v1"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first", [("open", 1), ("close", 0, "")]),
        ("last", [("open", 3), ("close", 2, "")]),
        ("two", [("open", 2), ("close", 1, ""), ("open", 3), ("close", 2, "")]),
        ("continuous", [("open", 2), ("extend", 3), ("close", 2, "")]),
        ("adopted", [("open", 2), ("extend", 3), ("close", 2, "")]),
        ("exception", [("open", 2), ("close", 1, "not_published")]),
        ("checkpoint", [("open", 2), ("close", 1, "not_published")]),
        ("agents", [("open", 2), ("close", 1, "")]),
        ("resumed", [("open", 3), ("close", 2, "")]),
        ("both", []),
    ],
)
def test_a_step_has_one_window(runs: dict[str, dict[str, Any]], name: str, expected: list[tuple[Any, ...]]) -> None:
    """
    However many mini-batches it has. It holds neither validation nor a checkpoint: the one that verl saves before the
    update ends it early. An exception ends it too; a step before the version resumed from has none.
    """
    assert expected == windows(runs[name])


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_run_ends_as_it_would_without_us(runs: dict[str, dict[str, Any]], name: str) -> None:
    """
    And verl's own profilers are never started beside ours.
    """
    assert SCENARIOS[name].get("failure", "") == runs[name]["failure"]
    assert not {"start_profile", "stop_profile"} & {*runs[name]["workers"], *runs[name]["servers"]}


def test_a_step_is_one_trace_of_verls_phases(runs: dict[str, dict[str, Any]]) -> None:
    """
    With the version in force, the mini-batch, and the kind of time.
    """
    run = runs["two"]
    (process,) = [span for span in spans(run, "rl.step.process") if span["attributes"]["rl.step"] == 2]
    inside = sorted((span for span in run["spans"] if span["parent"] == process["id"]), key=lambda span: span["start"])
    one = ["train.wait_samples", "train.log_prob", "train.advantage", "train.update_actor"]

    assert [*one * 4, "weights.publish"] == [span["name"] for span in inside]
    assert {1} == {span["attributes"]["param_version"] for span in inside}
    assert {"idle", "productive", "overhead"} == {span["attributes"]["rl.bucket"] for span in inside}
    updates = [span["attributes"] for span in inside if span["name"] == "train.update_actor"]
    assert [(0, 5), (1, 6), (2, 7), (3, 8)] == [(told["rl.mini_batch"], told["rl.global_step"]) for told in updates]
    assert [14] * 4 == [told["rl.tokens"] for told in updates]
    assert len({span["trace"] for span in inside}) == 1


def test_the_root_of_each_step_comes_once(runs: dict[str, dict[str, Any]]) -> None:
    """
    Also of the partial one that an exception leaves.
    """
    assert [1, 2, 3, 4] == steps(runs["two"], "rl.step")
    assert [1] == steps(runs["exception"], "rl.step")
    assert [None, True] == [span["attributes"].get("rl.step.partial") for span in spans(runs["exception"], "rl.step")]


def test_validation_and_checkpoint_belong_to_the_step_of_their_weights(runs: dict[str, dict[str, Any]]) -> None:
    """
    Validation before training has version 0; what follows update v has v.
    """
    assert [1, 2, 3] == steps(runs["first"], "validate")
    assert [0, 1, 2, 3] == [span["attributes"]["param_version"] for span in spans(runs["first"], "validate")]
    assert [2, 3] == [span["attributes"]["param_version"] for span in spans(runs["first"], "checkpoint.save")]


def test_replicas_are_told_of_validation_ahead_of_the_update(runs: dict[str, dict[str, Any]]) -> None:
    """
    And when it is over. Without validation nobody is told anything.
    """
    assert ["wait", "go"] * 4 == runs["first"]["sent"]
    assert ["wait", "go"] * 2 == runs["two"]["sent"]
    assert [] == runs["last"]["sent"]


def test_updates_that_replicas_on_the_trainers_devices_get_are_no_boundary(runs: dict[str, dict[str, Any]]) -> None:
    """
    verl tells them the version that is in force already.
    """
    told = [call for call in runs["first"]["workers"] if call.startswith("update_weights")]

    assert {"update_weights(1, naive)", "update_weights(1, standin)"} <= set(told)
    assert [1, 2, 3] == steps(runs["first"], "rl.step.process")


def test_the_sample_table_has_every_trajectory(runs: dict[str, dict[str, Any]]) -> None:
    """
    With the versions that verl noted when it was generated.
    """
    rows = runs["two"]["rows"]

    assert 4 * 4 * 2 == len(rows)
    assert {0, 1, 2} == {oldest for _, oldest, newest, *_ in rows if oldest == newest}


def test_a_mini_batch_links_the_samples_it_consumed(runs: dict[str, dict[str, Any]]) -> None:
    """
    The trainer knows their spans by their names, as does the sample table; nothing was told to it.
    """
    run = runs["agents"]
    found = {(span["trace"], span["id"]): span["attributes"] for span in spans(run, "rollout.sample")}
    links = [tuple(link) for span in spans(run, "train.update_actor") for link in span["links"]]

    assert 3 * 2 * 2 == len(run["rows"])
    assert [(row[3], row[4]) for row in run["rows"]] == links
    assert set(links) <= set(found)
    assert all(key.rpartition("_")[0] == found[trace, span]["rl.sample.id"] for key, _, _, trace, span in run["rows"])
    assert {32} == {len(request) for request in run["requests"]}


def test_a_resumed_run_says_where_it_resumed(runs: dict[str, dict[str, Any]]) -> None:
    """
    The identity of the process has the version and the number of steps to come.
    """
    (told,) = runs["resumed"]["identities"]

    assert (2, 2, 4) == (told["param_version"], told["resumed_from"], told["total_steps"])
    assert [3, 4] == steps(runs["resumed"], "rl.step.process")


def test_verls_setting_is_the_selection_where_there_is_no_other(runs: dict[str, dict[str, Any]]) -> None:
    """
    The process registers before the workers come, so that the sidecar knows what is selected.
    """
    assert [True, False] == [told["register_only"] for told in runs["adopted"]["identities"]]
