"""
The estimate of what profiling costs against what it did cost, in simulated runs.
"""

from collections import Counter

import numpy as np
import pytest

from tests.unit.sidecar.simulated import (
    ALERTING,
    KINDS,
    RIGHT,
    UNKNOWN,
    WRONG,
    above,
    judged,
    run,
    runs,
    verdict,
)

RUNS = 1000


def test_a_confident_figure_is_wrong_in_at_most_one_run_of_a_hundred() -> None:
    """
    Noise of each kind and of any amount, costs from nothing to several steps; what is told of single windows included.
    """
    found, windows, bounds = Counter[str](), Counter[str](), Counter[bool]()
    for number, noise in enumerate(KINDS.values()):
        for simulated in runs(noise, count=RUNS // len(KINDS), seed=100 + number):
            said, result = judged(simulated)
            found[said] += 1
            bounds[above(result.lower_bound, simulated.truth)] += 1
            assert result.ratio is None or (result.lower_bound or 0.0) <= result.ratio
            windows.update(verdict(cost.ratio, simulated.by_step[cost.step]) for cost in result.costs)
    print(f"runs: {dict(found)}; windows: {dict(windows)}; lower bounds above the truth: {bounds[True]}")

    assert RUNS == found.total()
    assert found[WRONG] <= 0.01 * RUNS
    assert found[WRONG] <= 0.01 * found[RIGHT]
    assert bounds[True] <= 0.01 * RUNS
    assert windows[WRONG] <= 0.01 * windows.total()
    # Always unknown would be no answer.
    assert found[RIGHT] >= 0.2 * RUNS


@pytest.mark.parametrize("kind", KINDS)
def test_a_clear_cost_is_known_in_nearly_all_quiet_runs(kind: str) -> None:
    """
    Three windows, each a sixth of a step and more, in runs whose steps vary by a thousandth.

    It is known less often where a step of them was slow by itself, where a run changes within a few steps by half, and
    where one step is hardly evidence beside the next.
    """
    random = np.random.default_rng(5)
    found = Counter(
        judged(run(random, KINDS[kind], x=20.0, y=600.0, amount=0.001, windows=3, steps=40, even=True))[0]
        for _ in range(100)
    )
    print(f"{kind}: {dict(found)}")

    assert 0 == found[WRONG]
    assert found[RIGHT] >= {"outliers": 85, "drift": 85, "autocorrelated": 95}.get(kind, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cost_below_the_noise_is_unknown(kind: str) -> None:
    """
    Not 0, and not whatever the noise makes of it.
    """
    random = np.random.default_rng(6)
    found = Counter(
        judged(run(random, KINDS[kind], x=0.5, y=1.0, amount=0.05, windows=3, steps=40))[0] for _ in range(100)
    )

    assert {UNKNOWN: 100} == found


@pytest.mark.parametrize("kind", KINDS)
def test_a_stall_of_several_steps_is_told_of_however_much_steps_vary(kind: str) -> None:
    """
    The alert hears of it in every run: the ratio is unknown in most of them, what it is at least is not.
    """
    random = np.random.default_rng(7)
    found = [
        judged(run(random, KINDS[kind], x=0.0, y=12_000.0, amount=0.1, windows=3, steps=40))[1] for _ in range(100)
    ]

    assert all((estimate.least or 0.0) > ALERTING for estimate in found)
    assert sum(estimate.ratio is None for estimate in found) > 10
