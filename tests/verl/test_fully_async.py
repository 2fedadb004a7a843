"""
verl's ``FullyAsyncTrainer.fit()``: which spans come, and which windows open and close.
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
    "ended early": {"mini_batches": 4, "samples": 10, "total_steps": 4, "environment": {RECORDS: "3"}},
    "extra sync": {"steps": 3, "test_freq": 2, "environment": {RECORDS: "3-4"}},
    "two": {"steps": 4, "mini_batches": 4, "environment": {RECORDS: "2,3"}},
    "continuous": {"steps": 4, "mini_batches": 4, "environment": {RECORDS: "2,3", "STEPSCOPE_CONTINUOUS": "1"}},
    "adopted": {"steps": 4, "environment": {"STEPSCOPE_RUN": "r"}, "overrides": ["global_profiler.steps=[2,3]"]},
    "exception": {
        "steps": 4,
        "mini_batches": 4,
        "fails_in": 6,
        "failure": "OutOfMemoryError",
        "environment": {RECORDS: "2,3"},
    },
    "checkpoint": {"steps": 2, "save_freq": 2, "environment": {RECORDS: "2"}},
    "resumed": {"steps": 2, "total_steps": 4, "first": 2, "resume": True, "environment": {RECORDS: "2,3"}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """
    All scenarios, one after another in one process.
    """
    return all_runs("fully_async_job", SCENARIOS, tmp_path_factory.mktemp("fully_async"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first", [("open", 1), ("close", 0, "")]),
        ("last", [("open", 3), ("close", 2, "")]),
        ("ended early", [("open", 3), ("close", 2, "not_published")]),
        ("extra sync", [("open", 3), ("close", 2, "")]),
        ("two", [("open", 2), ("close", 1, ""), ("open", 3), ("close", 2, "")]),
        ("continuous", [("open", 2), ("extend", 3), ("close", 2, "")]),
        ("adopted", [("open", 2), ("close", 1, ""), ("open", 3), ("close", 2, "")]),
        ("exception", [("open", 2), ("close", 1, "not_published")]),
        ("checkpoint", [("open", 2), ("close", 1, "")]),
        ("resumed", [("open", 3), ("close", 2, "")]),
    ],
)
def test_a_step_has_one_window(runs: dict[str, dict[str, Any]], name: str, expected: list[tuple[Any, ...]]) -> None:
    """
    However many mini-batches it has, and whatever ends it: the update, the end of the data, an exception.
    """
    assert expected == windows(runs[name])


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_run_ends_as_it_would_without_us(runs: dict[str, dict[str, Any]], name: str) -> None:
    """
    And verl's own profilers are never started beside ours.
    """
    asked = {*runs[name]["workers"], *runs[name]["servers"]}

    assert SCENARIOS[name].get("failure", "") == runs[name]["failure"]
    assert not {"start_profile", "stop_profile", "start_profiling", "stop_profiling"} & asked


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
    updates = [span["attributes"] for span in inside if span["name"] == "train.update_actor"]
    assert [(0, 5), (1, 6), (2, 7), (3, 8)] == [(told["rl.mini_batch"], told["rl.global_step"]) for told in updates]


def test_the_extra_synchronisation_at_the_end_is_no_step(runs: dict[str, dict[str, Any]]) -> None:
    """
    verl brings the last version once more, and validates once more. The replicas are told that they have it.
    """
    run = runs["extra sync"]

    assert ["wait", "go", "wait", "go", "again"] == run["sent"]
    assert 2 == run["workers"].count("update_weights(3, standin)")
    assert [1, 2, 3] == steps(run, "rl.step")


def test_validation_and_checkpoint_belong_to_the_step_of_their_weights(runs: dict[str, dict[str, Any]]) -> None:
    """
    Only where verl does validate: its method is called after every mini-batch.
    """
    assert [0, 1, 2, 3] == [span["attributes"]["param_version"] for span in spans(runs["first"], "validate")]
    assert [] == spans(runs["two"], "validate")
    assert {2, 3} == {span["attributes"]["param_version"] for span in spans(runs["first"], "checkpoint.save")}


def test_the_sample_table_has_every_trajectory(runs: dict[str, dict[str, Any]]) -> None:
    """
    With the versions that verl noted when it was generated.
    """
    rows = runs["two"]["rows"]

    assert 4 * 4 * 2 == len(rows)
    assert len({sample for sample, *_ in rows}) == len(rows)
    assert {0, 1, 2} == {oldest for _, oldest, newest, *_ in rows if oldest == newest}


def test_a_resumed_run_says_where_it_resumed(runs: dict[str, dict[str, Any]]) -> None:
    """
    A selected version that it resumes at causes no stop without a start.
    """
    (told,) = runs["resumed"]["identities"]

    assert (2, 2, 4) == (told["param_version"], told["resumed_from"], told["total_steps"])
    assert [3, 4] == steps(runs["resumed"], "rl.step.process")
