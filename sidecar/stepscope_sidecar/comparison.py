"""
Steps that were profiled against steps that were not: what the difference is, and how well it is known.

Pure statistics, of one series of numbers. Noise of both kinds of step counts, and so do drift over the run, steps that
resemble those before them, and steps that are slow now and then for no reason. What is compared is ``overhead``'s
affair. The answer holds only where its error is small beside it; anything else is unknown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

MIN_BASELINE = 3
"""With fewer unprofiled steps nothing can be said about how much they vary."""

TOLERANCE = 0.1
"""A ratio is told if it is within a tenth of the truth: with more error, budgets and alerts would act on noise."""

CHANCE = 0.025
"""How likely it may be that all profiled steps were slow by themselves, where profiling is said to have done it."""

OUTLYING = 5.0
"""Scales from the others at which an unprofiled step is no part of the usual noise: 1 in 2 million normal ones are."""

ENOUGH = 8
"""Unprofiled steps from which one can tell the usual noise from a step that stands apart."""

MEDIAN_COST = math.pi / 2
"""By how much the variance of a median exceeds that of a mean, where noise is normal."""

MAD = 1.4826
"""Times the median absolute deviation is the standard deviation of normal noise."""

MAX_CORRELATION = 0.9
"""Beyond it, ten steps tell less than one."""

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Two-sided 95% quantiles of Student's t with 1, 2, … degrees of freedom."""

STUDENT_BEYOND = 2.201
"""The quantile with 11 of them, for all above: a little too wide for many."""

SURE = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169)
"""The same at 99%: a lower bound is told alone, where no figure is."""

SURE_BEYOND = 3.106
"""With 11 of them, for all above."""

SURE_CHANCE = 0.005
"""As ``CHANCE``, for a lower bound."""

OTHER_WORK = 1.25
"""By how much the work of profiled steps may leave the range of unprofiled ones: that time goes by work is a guess."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """
    One step: what a unit of work took in it, and how much of what is usual it weighs.
    """

    step: int
    rate: float
    amount: float = 1.0
    work: float = 1.0
    """Units of work, against what other steps did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """
    What profiled steps took beyond unprofiled ones, stall included, as a part of the latter.

    ``error`` is half of the interval that holds the truth in at least 95 of 100 cases; ``why`` says why the ratio is
    not known.
    """

    normal: float
    """Seconds that the profiled steps would have taken unprofiled."""
    ratio: float
    error: float
    lower_bound: float | None = None
    """What the ratio is at least, in 99 of 100 cases, known or not; None where the work cannot be compared."""
    why: str = ""

    @property
    def known(self) -> bool:
        """
        Whether the ratio is one to tell.
        """
        return not self.why


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """
    How unprofiled steps go: a line over the steps of the run, and how they vary around it.
    """

    middle: float
    level: float
    slope: float
    residuals: tuple[float, ...]
    """In the order of the steps; of steps that stand apart too."""
    scale: float
    """The standard deviation of the usual noise."""
    freedom: int
    correlation: float
    spread: float
    """Sum of squared distances of the steps from their middle."""

    def at(self, step: float) -> float:
        """
        What a unit of work takes in an unprofiled step there.
        """
        return self.level + self.slope * (step - self.middle)


def line(points: Sequence[Point]) -> Line:
    """
    The line through unprofiled steps: medians of slopes and of levels, so that single slow steps do not move it.
    """
    points = sorted(points, key=lambda point: point.step)
    middle = sum(point.step for point in points) / len(points)
    slopes = [(b.rate - a.rate) / (b.step - a.step) for a, b in combinations(points, 2) if b.step > a.step]
    slope = median(slopes) if slopes else 0.0
    level = median(point.rate - slope * (point.step - middle) for point in points)
    residuals = tuple(point.rate - level - slope * (point.step - middle) for point in points)
    usual = residuals
    if len(points) >= ENOUGH:
        limit = OUTLYING * MAD * median(map(abs, residuals))
        inside = tuple(value for value in residuals if abs(value) <= limit)
        # Where many stand apart there is no usual noise to stand apart from.
        usual = inside if len(inside) >= 0.75 * len(points) else residuals
    freedom = max(1, len(usual) - 2)
    return Line(
        middle=middle,
        level=level,
        slope=slope,
        residuals=residuals,
        scale=math.sqrt(sum(value * value for value in usual) / freedom),
        freedom=freedom,
        correlation=_correlation(usual),
        spread=sum((point.step - middle) ** 2 for point in points),
    )


def compare(
    baseline: Sequence[Point], profiled: Sequence[Point], *, stall: float = 0.0, usual: Line | None = None
) -> Difference | None:
    """
    Profiled steps, which also stalled for ``stall`` seconds, against unprofiled ones; None if there are too few.

    ``usual`` is the line through ``baseline``, where that is known already.
    """
    if len(baseline) < MIN_BASELINE or not profiled:
        return None
    usual = usual or line(baseline)
    expected = [point.amount * usual.at(point.step) for point in profiled]
    normal = sum(expected)
    if normal <= 0 or usual.level <= 0:
        return None
    spent = sum(point.amount * point.rate for point in profiled)
    ratio = (stall + spent - normal) / normal
    of_normal, of_ratio, freedom = _errors(usual, profiled, expected, ratio)
    error = quantile(freedom) * of_ratio
    outlying = sum(abs(value) > TOLERANCE * abs(ratio) * usual.level for value in usual.residuals)
    by_itself = chance(len(baseline), len(profiled), outlying)
    other = _other_work(baseline, profiled)
    sure = quantile(freedom, SURE, SURE_BEYOND)
    # Stall is measured. Only what it is a part of can be wrong, and that steps go faster for being profiled is no gain.
    bounds = [0.0, stall / normal * (1 - sure * of_normal)]
    if by_itself <= SURE_CHANCE:
        bounds.append(ratio - sure * of_ratio)
    return Difference(
        normal=normal,
        ratio=ratio,
        error=error,
        lower_bound=None if other else min(max(bounds), max(ratio, 0.0)),
        why=other or _why(len(baseline), len(profiled), by_itself, ratio, error),
    )


def precise(ratio: float, error: float) -> bool:
    """
    Whether a measured ``ratio`` is within a tenth of the truth, wherever in the interval the truth lies.
    """
    return error <= abs(ratio) * TOLERANCE / (1 + TOLERANCE)


def _errors(
    usual: Line, profiled: Sequence[Point], expected: Sequence[float], ratio: float
) -> tuple[float, float, int]:
    """
    The standard errors of what is normal, as a part of it, and of the ratio; and of how many degrees of freedom.
    """
    normal = sum(expected)
    shares = [value / normal for value in expected]
    extra = [point.rate / usual.at(point.step) for point in profiled]
    mean = sum(share * value for share, value in zip(shares, extra, strict=True))
    squares = sum((value - mean) ** 2 for value in extra)
    freedom = usual.freedom + len(profiled) - 1
    scale = usual.scale / usual.level
    pooled = math.sqrt((usual.freedom * scale**2 + squares) / freedom)
    own = math.sqrt(squares / (len(profiled) - 1)) if len(profiled) > 1 else 0.0
    away = sum(share * (point.step - usual.middle) for share, point in zip(shares, profiled, strict=True))
    steps = len(usual.residuals)
    of_line = pooled**2 * MEDIAN_COST * (1 / steps + (away**2 / usual.spread if usual.spread else 0.0))
    of_profiled = max(pooled, own) ** 2 * sum(share**2 for share in shares)
    # An error of the line shifts all that is measured by it, the stall too.
    variance = (1 + ratio) ** 2 * of_line + of_profiled
    inflation = (1 + usual.correlation) / (1 - usual.correlation)
    return math.sqrt(of_line * inflation), math.sqrt(variance * inflation), freedom


def _why(baseline: int, profiled: int, by_itself: float, ratio: float, error: float) -> str:
    if not precise(ratio, error):
        return f"{ratio:+.1%} is measured, give or take {error:.1%}: steps vary too much for a figure"
    if ratio < 0:
        return f"profiled steps were faster by {-ratio:.1%}: something else than profiling differs between them"
    if by_itself > CHANCE:
        return (
            f"{ratio:+.1%} is measured, but steps that are slow by themselves may look the same with {profiled}"
            f" profiled against {baseline} unprofiled ones; more of either will tell"
        )
    return ""


def _other_work(baseline: Sequence[Point], profiled: Sequence[Point]) -> str:
    low, high = (end(point.work for point in baseline) for end in (min, max))
    each = sum(point.work for point in profiled) / len(profiled)
    if low / OTHER_WORK <= each <= high * OTHER_WORK:
        return ""
    return f"profiled steps did {each / high if each > high else each / low:.1f} times the work of any unprofiled one"


def chance(baseline: int, profiled: int, outlying: int) -> float:
    """
    How likely all ``profiled`` steps stand apart by themselves, where ``outlying`` of the ``baseline`` steps do.

    By Laplace's rule of succession: nothing is presumed of how often that happens.
    """
    return math.prod((outlying + 1 + more) / (baseline + 2 + more) for more in range(profiled))


def quantile(freedom: int, table: Sequence[float] = STUDENT, beyond: float = STUDENT_BEYOND) -> float:
    """
    How many standard errors hold the truth in 95 of 100 cases, or in so many as ``table`` is made for.
    """
    return table[freedom - 1] if freedom <= len(table) else beyond


def _correlation(residuals: Sequence[float]) -> float:
    """
    How much a step resembles the one before, from above: few steps cannot show that they do not.
    """
    squares = sum(value * value for value in residuals)
    if not squares:
        return 0.0
    found = sum(a * b for a, b in pairwise(residuals)) / squares + 1 / math.sqrt(len(residuals))
    return min(max(found, 0.0), MAX_CORRELATION)
