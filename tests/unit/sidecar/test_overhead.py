"""
What profiling cost: known, unknown, and revised.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from stepscope_sidecar.comparison import CHANCE, chance
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
            stalls={"start": stall / 4, "stop": stall * 3 / 4} if step in chosen else {},
        )
        for step, value in seconds.items()
    ]


def _run(steps: int, *, profiled: Iterable[int], seconds: float = 1.0, slower: float = 0.0) -> dict[int, float]:
    """
    What each of so many steps took; the first one took long, as first ones do.
    """
    chosen = set(profiled)
    return {1: 9.0} | {step: seconds + (slower if step in chosen else 0.0) for step in range(2, steps + 1)}


def test_overhead_is_stall_and_slowdown_over_unprofiled_time() -> None:
    """
    Steps of 1 s that took 1.3 s and stalled 0.2 s more cost half of themselves.
    """
    parts = _steps(_run(14, profiled=[5, 6], slower=0.3), profiled=[5, 6], stall=0.2)

    found = estimate(parts)["trainer"]

    assert pytest.approx(0.6) == found.slowdown
    assert pytest.approx(0.5) == found.ratio
    assert pytest.approx((0.4 + 1.2) / 4.0) == found.wall_ratio
    assert {"start": pytest.approx(0.1), "stop": pytest.approx(0.3)} == found.stalls
    assert (9, 2) == (found.baseline, found.profiled)
    assert [5, 6] == [cost.step for cost in found.costs]
    assert [pytest.approx(0.5)] * 2 == [cost.ratio for cost in found.costs]


def test_with_fewer_than_three_unprofiled_steps_it_is_unknown() -> None:
    """
    Step 1, and the steps beside a window, are no baseline: 2 and 3 remain. The stall is known all the same.
    """
    parts = _steps({1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.3, 6: 1.0}, profiled=[5], stall=0.2)

    found = estimate(parts)["trainer"]

    assert (None, None) == (found.ratio, found.slowdown)
    assert pytest.approx(0.2) == found.stall
    assert [(5, None)] == [(cost.step, cost.ratio) for cost in found.costs]
    assert "2 unprofiled steps, 3 are needed" == found.why


def test_it_is_revised_when_later_steps_allow_it() -> None:
    """
    The same windows: unknown at first, then a figure that chance may have made, known with further unprofiled steps.
    """

    def after(steps: int) -> tuple[float | None, str]:
        found = estimate(_steps(_run(steps, profiled=[5, 6], slower=0.3), profiled=[5, 6]))["trainer"]
        return found.ratio, found.why

    assert (None, "2 unprofiled steps, 3 are needed") == after(7)
    assert after(11)[0] is None
    assert "2 profiled against 6 unprofiled" in after(11)[1]
    assert pytest.approx(0.3) == after(12)[0]


@pytest.mark.parametrize(("windows", "unprofiled"), [(1, 38), (2, 7), (3, 4), (4, 3)])
def test_the_fewer_windows_the_more_unprofiled_steps_it_takes(windows: int, unprofiled: int) -> None:
    """
    A step that is slow by itself now and then must not be put down to profiling.
    """
    assert chance(unprofiled, windows, 0) <= CHANCE < chance(unprofiled - 1, windows, 0)
    assert chance(unprofiled, windows, 1) > chance(unprofiled, windows, 0)


def test_scatter_above_the_difference_makes_it_unknown() -> None:
    """
    Steps that vary by half of themselves say nothing about a tenth; how much could be told is said.
    """
    parts = _steps({2: 0.7, 3: 1.3, 4: 0.7, 5: 1.3, 6: 1.0, 7: 1.0, 8: 1.1, 9: 1.1}, profiled=[8, 9])

    found = estimate(parts)["trainer"]

    assert found.ratio is None
    assert found.error is not None
    assert found.error > 0.3
    assert "steps vary too much" in found.why


def test_profiled_steps_that_vary_make_it_unknown() -> None:
    """
    However steady the others are: one of these two had something else, or the profiling is not always alike.
    """
    parts = _steps(_run(30, profiled=[]) | {9: 1.3, 10: 2.5}, profiled=[9, 10])

    assert "steps vary too much" in estimate(parts)["trainer"].why


def test_a_stall_far_above_the_scatter_is_known() -> None:
    """
    What is measured directly is not lost in the noise of the rest.
    """
    parts = _steps(
        {step: 1.0 + (-1) ** step * 0.02 for step in range(2, 20)} | {8: 1.0, 9: 1.0}, profiled=[8, 9], stall=5.0
    )

    assert pytest.approx(5.0, abs=0.2) == estimate(parts)["trainer"].ratio


def test_steps_that_get_longer_are_no_overhead() -> None:
    """
    Answers get longer as a policy learns: a later step took longer than the median of all, and was not slowed down.
    """
    longer = {step: 1.0 + 0.05 * step for step in range(1, 21)}
    parts = _steps(longer, profiled=[18, 19], stall=0.19)

    found = estimate(parts)["trainer"]

    assert pytest.approx(0.0, abs=1e-9) == found.slowdown
    assert pytest.approx(2 * 0.19 / (1.9 + 1.95)) == found.ratio


def test_steps_that_were_faster_when_profiled_are_no_gain() -> None:
    """
    Profiling makes nothing faster: something else differed, and what profiling cost is unknown.
    """
    parts = _steps(_run(30, profiled=[9, 10], slower=-0.3), profiled=[9, 10])

    found = estimate(parts)["trainer"]

    assert found.ratio is None
    assert "faster by 30.0%" in found.why


def _worked(work: dict[int, float], *, profiled: Iterable[int]) -> list[ProcessStep]:
    chosen = set(profiled)
    return [
        ProcessStep(
            role="trainer",
            rank=0,
            step=step,
            profiled=step in chosen,
            productive=units / 100,
            wall=5.0,
            work=units,
            stalls={"stop": 0.1} if step in chosen else {},
        )
        for step, units in work.items()
    ]


def test_slowdown_is_per_unit_of_work() -> None:
    """
    Profiled steps with twice the work in twice the time were not slowed down, where others had as much now and then.
    """
    parts = _worked(
        {step: 100.0 + 50.0 * (step % 3) for step in range(2, 20)} | {9: 200.0, 10: 200.0}, profiled=[9, 10]
    )

    found = estimate(parts)["trainer"]

    assert pytest.approx(0.0) == found.slowdown
    assert pytest.approx(0.05) == found.ratio


def test_work_that_no_unprofiled_step_did_is_not_compared() -> None:
    """
    That a step with twice the work takes twice the time is not known, where none did.
    """
    parts = _worked(dict.fromkeys(range(2, 20), 100.0) | {9: 200.0, 10: 200.0}, profiled=[9, 10])

    found = estimate(parts)["trainer"]

    assert (None, "profiled steps did 2.0 times the work of any unprofiled one") == (found.ratio, found.why)


def test_a_window_of_one_role_spoils_the_baseline_of_all() -> None:
    """
    A rollouter's steps beside a trainer's window are no baseline: it waits for the profiled one.
    """
    trainer = _steps(_run(14, profiled=[5, 6], slower=0.5), profiled=[5, 6])
    rollouter = _steps(_run(14, profiled=[]) | {4: 9.0, 5: 1.2, 6: 1.2, 7: 9.0}, profiled=[5, 6], role="rollouter")

    found = estimate(trainer + rollouter)

    assert pytest.approx(0.2) == found["rollouter"].ratio
    assert pytest.approx(0.5) == found["trainer"].ratio


def test_a_window_of_a_process_that_was_lost_spoils_steps_too() -> None:
    """
    It has no part of its own in that step; the others waited for it.
    """
    parts = _steps(_run(14, profiled=[5, 6], slower=0.3) | {9: 5.0, 10: 5.0, 11: 5.0}, profiled=[5, 6])

    assert estimate(parts)["trainer"].ratio is None
    assert 6 == estimate(parts, recorded=[10])["trainer"].baseline


def test_a_process_is_compared_with_itself() -> None:
    """
    Rank 1 takes twice as long as rank 0, always; profiling rank 1 alone made neither slower.
    """
    parts = _steps(_run(14, profiled=[])) + _steps(
        _run(14, profiled=[], seconds=2.0), profiled=[5, 6], stall=0.2, rank=1
    )

    assert pytest.approx(0.1) == estimate(parts)["trainer"].ratio


def test_ranks_are_no_further_evidence() -> None:
    """
    What makes a step slow makes it slow for all ranks: two steps of eight ranks are two steps.
    """
    parts = [part for rank in range(8) for part in _steps(_run(9, profiled=[5], slower=0.3), profiled=[5], rank=rank)]

    found = estimate(parts)["trainer"]

    assert (None, 1, 5) == (found.ratio, found.profiled, found.baseline)


def test_a_window_that_is_open_costs_nothing_yet_and_is_no_baseline() -> None:
    """
    What stopping it takes is not known before it is closed: a figure without it would be too low.
    """
    parts = _steps(_run(17, profiled=[5, 6, 15], slower=0.3), profiled=[5, 6, 15], stall=0.2)
    parts = [replace(part, closed=False, stalls={}) if part.step == 15 else part for part in parts]

    found = estimate(parts)["trainer"]

    assert pytest.approx(0.5) == found.ratio
    assert (9, 2) == (found.baseline, found.profiled)


def test_waiting_for_samples_is_no_overhead() -> None:
    """
    Profiled steps in which a trainer waited for minutes cost what their work was slower by. On wall time it is unknown.
    """
    parts = _steps(_run(14, profiled=[5, 6], slower=0.3), profiled=[5, 6])
    parts = [replace(part, wall=part.productive + (240.0 if part.profiled else part.step % 4)) for part in parts]

    found = estimate(parts)["trainer"]

    assert pytest.approx(0.3) == found.ratio
    assert found.wall_ratio is None
    assert found.wall_why


def test_a_run_s_figure_is_of_its_last_windows_and_each_window_keeps_its_own() -> None:
    """
    Of 30 windows the first ten cost much; the figure of the run is of the last 20.
    """
    profiled = range(4, 4 + 4 * 30, 4)
    parts = _steps(_run(130, profiled=profiled, slower=0.1), profiled=profiled)
    parts = [replace(part, productive=2.0) if part.profiled and part.step < 44 else part for part in parts]

    found = estimate(parts)["trainer"]

    assert pytest.approx(0.1) == found.ratio
    assert 20 == found.profiled
    assert [pytest.approx(1.0)] * 10 + [pytest.approx(0.1)] * 20 == [cost.ratio for cost in found.costs]


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
    assert 20 == union([(0, 10), (5, 20), (40, 50)], without=[(10, 20)])
