"""
What profiling cost: stall, which is measured, and slowdown, which is estimated from unprofiled steps.

Pure, and revised as a whole whenever there is more to know: an estimate that was unknown becomes known once later
unprofiled steps allow it. Reading steps out of the store is left to ``costs``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

MIN_BASELINE = 3
"""With fewer unprofiled steps nothing can be said about how much they vary."""

MAX_BASELINE = 20
"""The last unprofiled steps: a run's work and machine change over hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessStep:
    """
    One process's part of one step. ``productive`` and ``wall`` are seconds, ``stall`` lies in neither.
    """

    role: str
    rank: int
    step: int
    profiled: bool
    productive: float
    wall: float
    work: float
    """Units of work done in the productive time; 0 where the spans do not say."""
    stall: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """
    What the window of one process cost in one step; ``slowdown`` and ``ratio`` are None while unknown.
    """

    role: str
    rank: int
    step: int
    stall: float
    slowdown: float | None
    ratio: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """
    A role's overhead over all its profiled steps; None where it is unknown, and ``why`` says why.
    """

    role: str
    stall: float
    slowdown: float | None
    ratio: float | None
    wall_ratio: float | None
    baseline_steps: int
    why: str
    costs: tuple[Cost, ...]


def estimate(parts: Iterable[ProcessStep]) -> dict[str, Estimate]:
    """
    The overhead of each role that has a profiled step.
    """
    known = list(parts)
    # A step next to a window is no baseline for anybody: others wait for the profiled process, caches are cold.
    touched = {part.step + near for part in known if part.profiled for near in (-1, 0, 1)} | {1}
    return {
        role: _estimate(role, [part for part in known if part.role == role], touched)
        for role in sorted({part.role for part in known if part.profiled})
    }


def _estimate(role: str, parts: Sequence[ProcessStep], touched: set[int]) -> Estimate:
    profiled = [part for part in parts if part.profiled]
    stall = sum(part.stall for part in profiled)
    last = sorted({part.step for part in parts} - touched)[-MAX_BASELINE:]
    baseline = [part for part in parts if part.step in set(last)]
    by_work = all(part.work > 0 for part in [*baseline, *profiled])
    amount = [part.work if by_work else 1.0 for part in profiled]
    rates = [part.productive / (part.work if by_work else 1.0) for part in baseline]
    slowdown, ratio, why = _compare([part.productive for part in profiled], amount, rates, stall, len(last))
    _, wall_ratio, _ = _compare(
        [part.wall for part in profiled], [1.0] * len(profiled), [part.wall for part in baseline], stall, len(last)
    )
    normal = median(rates) if slowdown is not None else 0.0
    costs = [
        _cost(part, normal * work if slowdown is not None else None)
        for part, work in zip(profiled, amount, strict=True)
    ]
    return Estimate(
        role=role,
        stall=stall,
        slowdown=slowdown,
        ratio=ratio,
        wall_ratio=wall_ratio,
        baseline_steps=len(last),
        why=why,
        costs=tuple(costs),
    )


def _compare(
    seconds: Sequence[float], amount: Sequence[float], rates: Sequence[float], stall: float, steps: int
) -> tuple[float | None, float | None, str]:
    """
    Slowdown, ratio and why they are unknown, of ``seconds`` spent on ``amount`` against unprofiled ``rates``.
    """
    if steps < MIN_BASELINE:
        return None, None, f"{steps} unprofiled steps, {MIN_BASELINE} are needed"
    normal = median(rates) * sum(amount)
    if normal <= 0:
        return None, None, "no productive time in unprofiled steps"
    slowdown = sum(seconds) - normal
    low, _, high = quantiles(rates, n=4, method="inclusive")
    scatter = (high - low) * sum(amount)
    if scatter > abs(stall + slowdown):
        return None, None, f"unprofiled steps scatter by {scatter / normal:.1%}, more than the difference"
    return slowdown, (stall + slowdown) / normal, ""


def _cost(part: ProcessStep, normal: float | None) -> Cost:
    slowdown = None if not normal else part.productive - normal
    return Cost(
        role=part.role,
        rank=part.rank,
        step=part.step,
        stall=part.stall,
        slowdown=slowdown,
        ratio=None if not normal or slowdown is None else (part.stall + slowdown) / normal,
    )
