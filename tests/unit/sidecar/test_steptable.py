"""
The table of steps.
"""

import pytest

from stepscope_sidecar.overhead import Cost
from stepscope_sidecar.steptable import StepRow, table
from tests.unit.sidecar.stepped import cost, estimate, sample, span
from tests.unit.sidecar.stored import window


def test_a_row_says_the_step_and_the_version_it_runs_under() -> None:
    """
    Every surface prints both.
    """
    (row,) = table([span("rl.step.process", 4)])

    assert "step 4 (weights v3 in force, makes v4)" == row.title
    assert (4, 3) == (row.step, row.version)


def test_seconds_are_those_of_the_slowest_rank_of_a_role() -> None:
    """
    A step takes as long as its slowest process; roles do not mix.
    """
    spans = [span("rl.step.process", 4, rank=rank, seconds=1.5 + rank) for rank in range(2)]

    (row,) = table([*spans, span("rl.step.process", 4, role="rollouter", seconds=9.0)])

    assert (2.5, 9.0) == (row.trainer_seconds, row.rollouter_seconds)


def test_reward_is_the_trainers_mean_over_samples() -> None:
    """
    What the step's span says holds; else the mini-batches', by their samples; else it is unknown.
    """
    batches = [
        span("train.update_actor", 1, rl__reward=1.0, rl__samples=30),
        span("train.update_actor", 1, rl__reward=0, rl__samples=10),
    ]
    said = span("rl.step.process", 2, rl__reward=0.5)

    rows = table([*batches, said, *(span("train.update_actor", 2, rl__reward=0.9),), span("rl.step.process", 3)])

    assert [0.75, 0.5, None] == [row.reward for row in rows]


def test_unknown_versions_are_counted_and_not_zero() -> None:
    """
    Staleness is the mean over samples whose oldest version is known; of the others there is a number.
    """
    rows = table(
        [],
        windows=[window(5), window(6)],
        samples=[sample(5, 3, 3), sample(5, 2, 4), sample(5, None, None), sample(6, None, 2)],
    )

    assert [(1.5, 1), (None, 1)] == [(row.staleness, row.staleness_unknown) for row in rows]


def test_windows_are_counted_by_state_ready_first() -> None:
    """
    A step with windows is listed even before any span of it has arrived.
    """
    rows = table([], windows=[window(5), window(5, "denied"), window(5, "denied"), window(6, "failed")])

    assert ["1 ready, 2 denied", "1 failed"] == [row.recorded for row in rows]
    assert ["unknown", ""] == [row.overhead for row in rows]


def test_a_window_that_says_it_has_no_end_costs_no_more_than_another() -> None:
    """
    It counts for the steps that there are.
    """
    rows = table([span("rl.step.process", 7)], windows=[window(5, other={"last_step": 2**63 - 1}), window(6, "failed")])

    assert [(5, "1 ready"), (6, "1 ready, 1 failed"), (7, "1 ready")] == [(row.step, row.recorded) for row in rows]


@pytest.mark.parametrize(
    ("costs", "said", "ratio"),
    [
        ([], "unknown", None),
        ([cost(5, None)], "unknown", None),
        ([cost(5, 0.05), cost(5, 0.2, rank=1), cost(5, None, rank=2)], "+20.0%", 0.2),
        ([cost(5, -0.02)], "-2.0%", -0.02),
    ],
)
def test_overhead_is_that_of_the_process_it_cost_most(costs: list[Cost], said: str, ratio: float | None) -> None:
    """
    Unknown is said so, a negative figure too.
    """
    (row,) = table([], windows=[window(5)], estimates={"trainer": estimate(*costs)})

    assert (said, ratio) == (row.overhead, row.overhead_ratio)


def test_work_after_the_last_update_is_called_so() -> None:
    """
    A partial step makes no version.
    """
    (row,) = table([span("rl.step.process", 13, rl__step__partial=True)])

    assert "step 13 (weights v12 in force, after the last update)" == row.title


def test_json_has_what_the_table_shows() -> None:
    """
    Programs get numbers and words alike.
    """
    found = StepRow(step=2, version=1, seconds={"trainer": 1.0}, windows={"ready": 1}).json()

    assert {
        "step": 2,
        "version": 1,
        "seconds": {"trainer": 1.0},
        "recorded": "1 ready",
        "overhead": "unknown",
    }.items() <= (found.items())
