"""
What profiling cost: known, unknown, and revised.
"""

from collections.abc import Iterable

import pytest

from stepscope_sidecar.costs import union
from stepscope_sidecar.overhead import ProcessStep, estimate


def _steps(
    seconds: dict[int, float], *, profiled: Iterable[int] = (), stall: float = 0.0, role: str = "trainer", rank: int = 0
) -> list[ProcessStep]:
    chosen = set(profiled)
    return [
        ProcessStep(
            role=role,
            rank=rank,
            step=step,
            profiled=step in chosen,
            productive=value,
            wall=2 * value,
            work=100.0,
            stall=stall if step in chosen else 0.0,
        )
        for step, value in seconds.items()
    ]


def test_overhead_is_stall_and_slowdown_over_unprofiled_time() -> None:
    """
    A step of 1 s that took 1.3 s and stalled 0.2 s more cost half of itself.
    """
    parts = _steps({1: 9.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0, 6: 1.3, 7: 1.0}, profiled=[6], stall=0.2)

    found = estimate(parts)["trainer"]

    assert pytest.approx(0.3) == found.slowdown
    assert pytest.approx(0.5) == found.ratio
    assert pytest.approx((0.2 + 0.6) / 2.0) == found.wall_ratio
    assert [6] == [cost.step for cost in found.costs]
    assert pytest.approx(0.5) == found.costs[0].ratio


def test_with_fewer_than_three_unprofiled_steps_it_is_unknown() -> None:
    """
    Step 1, and the steps beside a window, are no baseline: 2 and 3 remain. The stall is known all the same.
    """
    parts = _steps({1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.3, 6: 1.0}, profiled=[5], stall=0.2)

    found = estimate(parts)["trainer"]

    assert (None, None, 2, 0.2) == (found.ratio, found.slowdown, found.baseline_steps, found.stall)
    assert "3 are needed" in found.why


def test_it_is_revised_when_later_steps_allow_it() -> None:
    """
    The same window, known once a third unprofiled step is there.
    """
    early = _steps({2: 1.0, 3: 1.0, 4: 1.0, 5: 1.3, 6: 1.0}, profiled=[5])
    late = early + _steps({7: 1.0})

    assert estimate(early)["trainer"].ratio is None
    assert pytest.approx(0.3) == estimate(late)["trainer"].ratio


def test_scatter_above_the_difference_makes_it_unknown() -> None:
    """
    Steps that vary by half of themselves say nothing about a tenth.
    """
    parts = _steps({2: 0.7, 3: 1.3, 4: 0.7, 5: 1.3, 6: 1.0, 7: 1.0, 8: 1.1}, profiled=[8])

    found = estimate(parts)["trainer"]

    assert found.ratio is None
    assert "scatter" in found.why


def test_a_stall_far_above_the_scatter_is_known() -> None:
    """
    What is measured directly is not lost in the noise of the rest.
    """
    parts = _steps({2: 0.7, 3: 1.3, 4: 0.7, 5: 1.3, 6: 1.0, 7: 1.0, 8: 1.1}, profiled=[8], stall=5.0)

    ratio = estimate(parts)["trainer"].ratio

    assert ratio is not None
    assert ratio > 4.0


def test_slowdown_is_per_unit_of_work() -> None:
    """
    A profiled step with twice the work in twice the time was not slowed down.
    """
    parts = _steps({2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0})
    double = ProcessStep(role="trainer", rank=0, step=7, profiled=True, productive=2.0, wall=4.0, work=200.0, stall=0.1)

    found = estimate([*parts, double])["trainer"]

    assert pytest.approx(0.0) == found.slowdown
    assert pytest.approx(0.05) == found.ratio


def test_a_window_of_one_role_spoils_the_baseline_of_all() -> None:
    """
    A rollouter's steps beside a trainer's window are no baseline: it waits for the profiled one.
    """
    trainer = _steps({2: 1.0, 3: 1.0, 4: 1.0, 5: 1.5, 6: 1.0, 7: 1.0}, profiled=[5])
    rollouter = _steps({2: 1.0, 3: 1.0, 4: 9.0, 5: 1.2, 6: 9.0, 7: 1.0}, profiled=[5], role="rollouter")

    found = estimate(trainer + rollouter)

    assert pytest.approx(0.2) == found["rollouter"].ratio
    assert pytest.approx(0.5) == found["trainer"].ratio


def test_a_role_without_a_window_has_no_figure() -> None:
    """
    Nothing was recorded, so there is nothing to say.
    """
    assert {} == estimate(_steps({2: 1.0, 3: 1.0}))


def test_requests_side_by_side_count_once() -> None:
    """
    Productive time is when at least one of them ran, less the stall that fell into it.
    """
    assert 30 == union([(0, 10), (5, 20), (40, 50), (42, 44)])
    assert 20 == union([(0, 10), (5, 20), (40, 50)], without=(10, 20))
