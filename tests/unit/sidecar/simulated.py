"""
Simulated runs in which what profiling costs is known, because it is put in: x ms per mini-batch, y ms at the stop.

``python -m tests.unit.sidecar.simulated [RUNS]`` prints how often the estimate is right, wrong and unknown, by kind of
noise. The truth is what was put in, against what the profiled steps would take on average without it.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope_sidecar.overhead import Estimate, ProcessStep, estimate

Numbers = NDArray[np.float64]

Noise = Callable[[np.random.Generator, int, float], tuple[Numbers, Numbers]]
"""What steps take against what they would on average, with and without their noise."""

SLOWDOWNS = (0.0, 2.0, 10.0, 50.0)
"""x: milliseconds that each mini-batch takes longer in a window."""

STALLS = (5.0, 50.0, 500.0, 3000.0)
"""y: milliseconds that the end of a window takes."""

AMOUNTS = (0.001, 0.005, 0.02, 0.1)
"""By how much steps vary: quiet machines of one's own up to crowded ones."""

WINDOWS = (1, 2, 3, 4, 8)

ALERTING = 0.1
"""At which ratio the alert fires."""

DEAR = 0.12
"""From which cost on it should: a ratio is known to a tenth."""

RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"


def gaussian(random: np.random.Generator, steps: int, amount: float) -> tuple[Numbers, Numbers]:
    """
    Each step by itself, to both sides alike.
    """
    return 1 + amount * random.standard_normal(steps), np.ones(steps)


def log_normal(random: np.random.Generator, steps: int, amount: float) -> tuple[Numbers, Numbers]:
    """
    Long to one side, as work on answers of any length is.
    """
    return np.exp(amount * random.standard_normal(steps)), np.ones(steps) * float(np.exp(amount**2 / 2))


def outliers(random: np.random.Generator, steps: int, amount: float) -> tuple[Numbers, Numbers]:
    """
    One step in 100 to 20 takes up to three times as long, for whatever reason.
    """
    slow = random.random(steps) < random.choice([0.01, 0.02, 0.05])
    return 1 + amount * random.standard_normal(steps) + slow * random.uniform(0.2, 2.0, steps), np.ones(steps)


def drift(random: np.random.Generator, steps: int, amount: float) -> tuple[Numbers, Numbers]:
    """
    Steps get longer or shorter over the run, evenly or less and less.
    """
    along = np.arange(steps, dtype=np.float64)
    if random.random() < 0.5:
        trend: Numbers = 1 + float(random.uniform(-0.005, 0.02)) * along
    else:
        change, pace = random.uniform((-0.3, 5.0), (0.5, 40.0))
        trend = 1 + float(change) * (1 - np.exp(-along / float(pace)))
    return trend * (1 + amount * random.standard_normal(steps)), trend


def autocorrelated(random: np.random.Generator, steps: int, amount: float) -> tuple[Numbers, Numbers]:
    """
    A step resembles the one before.
    """
    resemblance = random.uniform(0.3, 0.9)
    noise = random.standard_normal(steps)
    for step in range(1, steps):
        noise[step] = resemblance * noise[step - 1] + np.sqrt(1 - resemblance**2) * noise[step]
    return 1 + amount * noise, np.ones(steps)


KINDS: Mapping[str, Noise] = {
    "gaussian": gaussian,
    "log-normal": log_normal,
    "outliers": outliers,
    "drift": drift,
    "autocorrelated": autocorrelated,
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """
    A simulated run.
    """

    parts: list[ProcessStep]
    truth: float
    by_step: dict[int, float] = field(default_factory=dict)


def run(
    random: np.random.Generator,
    noise: Noise,
    *,
    x: float,
    y: float,
    amount: float,
    windows: int,
    steps: int,
    seconds: float = 4.0,
    even: bool = False,
) -> Run:
    """
    One run of a trainer, its windows in a row, at its end, or anywhere; with ``even`` steps have the same work, always.
    """
    mini_batches = int(random.choice([1, 4, 16]))
    first = int(random.integers(2, steps - windows + 1))
    where = random.random()
    if where < 0.4:
        chosen = list(range(first, first + windows))
    elif where < 0.6:
        chosen = list(range(steps - windows + 1, steps + 1))
    else:
        chosen = sorted(int(step) for step in random.choice(np.arange(2, steps + 1), size=windows, replace=False))
    noisy, without = noise(random, steps + 1, amount)
    work = random.uniform(0.8, 1.2, steps + 1) if not even and random.random() < 0.5 else np.ones(steps + 1)
    usual, taken = seconds * work * without, seconds * work * np.maximum(noisy, 0.05)
    parts: list[ProcessStep] = []
    costs: dict[int, float] = {}
    for step in range(1, steps + 1):
        profiled = step in chosen
        slower = mini_batches * x / 1000 * (1 + 0.05 * random.standard_normal()) if profiled else 0.0
        stall = y / 1000 * (1 + 0.05 * random.standard_normal()) if profiled else 0.0
        if profiled:
            costs[step] = slower + stall
        parts.append(
            ProcessStep(
                role="trainer",
                rank=0,
                step=step,
                profiled=profiled,
                productive=float(taken[step]) + slower,
                # Waiting is the most of it, and any amount.
                wall=float(taken[step]) + slower + seconds * random.exponential(3.0),
                work=1000.0 * float(work[step]),
                stalls={"stop": stall} if profiled else {},
            )
        )
    normal = sum(float(usual[step]) for step in chosen)
    by_step = {step: cost / float(usual[step]) for step, cost in costs.items()}
    return Run(parts=parts, truth=sum(costs.values()) / normal, by_step=by_step)


def runs(noise: Noise, *, count: int, seed: int) -> Iterator[Run]:
    """
    Runs over the grid of x and y, with noise of any amount.
    """
    random = np.random.default_rng(seed)
    grid = [(x, y) for x in SLOWDOWNS for y in STALLS]
    for number in range(count):
        x, y = grid[number % len(grid)]
        windows = int(random.choice(WINDOWS))
        yield run(
            random,
            noise,
            x=x,
            y=y,
            amount=float(random.choice(AMOUNTS)),
            windows=windows,
            steps=int(random.integers(windows + 8, 80)),
            seconds=float(random.choice([0.5, 4.0, 30.0])),
        )


def verdict(ratio: float | None, truth: float) -> str:
    """
    Whether a reported ratio is within a tenth of the truth.
    """
    if ratio is None:
        return UNKNOWN
    return RIGHT if abs(ratio - truth) <= 0.1 * truth else WRONG


def above(bound: float | None, truth: float) -> bool:
    """
    Whether a lower bound was told that is above the truth.
    """
    return bound is not None and bound > truth


def judged(simulated: Run) -> tuple[str, Estimate]:
    """
    The verdict on the estimate of a run.
    """
    found = estimate(simulated.parts)["trainer"]
    return verdict(found.ratio, simulated.truth), found


def main(count: int) -> None:
    """
    Print the rates.
    """
    print(
        f"{'noise':16}{'runs':>8}{'wrong':>8}{'wrong of known':>16}{'unknown':>10}{'windows wrong':>15}"
        f"{'bound wrong':>13}{'dear':>8}{'ratio tells':>13}{'either tells':>14}"
    )
    for number, (kind, noise) in enumerate(KINDS.items()):
        found, steps, alerts = Counter[str](), Counter[str](), Counter[str]()
        for simulated in runs(noise, count=count, seed=number):
            said, result = judged(simulated)
            found[said] += 1
            alerts["wrong"] += above(result.lower_bound, simulated.truth)
            if simulated.truth > DEAR:
                alerts["dear"] += 1
                alerts["ratio"] += (result.ratio or 0.0) > ALERTING
                alerts["either"] += (result.least or 0.0) > ALERTING
            steps.update(verdict(cost.ratio, simulated.by_step[cost.step]) for cost in result.costs)
        known = max(1, count - found[UNKNOWN])
        rates = (found[WRONG] / count, found[WRONG] / known, found[UNKNOWN] / count, steps[WRONG] / steps.total())
        print(
            f"{kind:16}{count:8}{rates[0]:8.2%}{rates[1]:16.2%}{rates[2]:10.1%}{rates[3]:15.2%}"
            f"{alerts['wrong'] / count:13.2%}{alerts['dear']:8}{alerts['ratio']:13}{alerts['either']:14}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
