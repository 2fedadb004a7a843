"""
The table of steps.
"""

from typing import Any

import pytest

from stepscope_sidecar.overhead import Cost, Estimate
from stepscope_sidecar.rows import SampleRow, SpanRow, WindowRow
from stepscope_sidecar.steptable import StepRow, table


def span(
    name: str, step: int, *, role: str = "trainer", rank: int = 0, seconds: float = 1.0, **attributes: Any
) -> SpanRow:
    """
    A span of one process in ``step``; dots in attribute names are written ``__``.
    """
    return SpanRow(
        trace_id="1" * 32,
        span_id=f"{step:08x}{rank:08x}",
        parent_span_id="",
        name=name,
        start_unix_ns=10**18,
        end_unix_ns=10**18 + int(seconds * 1e9),
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
        role=role,
        rank=rank,
        step=step,
        param_version=step - 1,
    )


def window(step: int, state: str = "ready", **changes: Any) -> WindowRow:
    """
    A window of ``step``.
    """
    values: dict[str, Any] = {
        "window": f"w-{step}-{state}",
        "run": "r",
        "attempt": "a",
        "node": "n",
        "step": step,
        "param_version": step - 1,
        "role": "trainer",
        "rank": 0,
        "pid": 7,
        "tool": "torch",
        "level": "ops",
        "state": state,
    }
    return WindowRow(**{**values, **changes})


def sample(step: int, oldest: int | None, newest: int | None) -> SampleRow:
    """
    A sample consumed in ``step``.
    """
    return SampleRow(
        step=step, mini_batch=0, param_version=step - 1, sample_id="s", oldest_version=oldest, newest_version=newest
    )


def estimate(*costs: Cost, ratio: float | None = 0.1, why: str = "") -> Estimate:
    """
    An estimate of the trainer's overhead.
    """
    return Estimate(
        role="trainer", stall=0.5, slowdown=0.1, ratio=ratio, wall_ratio=None, baseline_steps=3, why=why, costs=costs
    )


def cost(step: int, ratio: float | None, *, rank: int = 0) -> Cost:
    """
    What a window of ``step`` cost.
    """
    slowdown = None if ratio is None else 0.25
    return Cost(role="trainer", rank=rank, step=step, stall=0.5, slowdown=slowdown, ratio=ratio)


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
    Staleness is the mean over samples whose version is known; of the others there is a number.
    """
    rows = table(
        [],
        windows=[window(5), window(6)],
        samples=[sample(5, 3, 3), sample(5, 3, 4), sample(5, None, None), sample(6, None, 2)],
    )

    assert [(0.75, 1), (None, 1)] == [(row.staleness, row.staleness_unknown) for row in rows]


def test_windows_are_counted_by_state_ready_first() -> None:
    """
    A step with windows is listed even before any span of it has arrived.
    """
    rows = table([], windows=[window(5), window(5, "denied"), window(5, "denied"), window(6, "failed")])

    assert ["1 ready, 2 denied", "1 failed"] == [row.recorded for row in rows]
    assert ["unknown", ""] == [row.overhead for row in rows]


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
