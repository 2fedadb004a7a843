"""
What profiling cost: stall, which is measured, and slowdown, which is estimated from unprofiled steps.

Pure, and revised as a whole whenever there is more to know: an estimate that was unknown becomes known once later
unprofiled steps allow it. Owns which steps are compared and per what. Reading them out of the store is left to
``costs``, and whether a difference is one to tell to ``comparison``.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from stepscope_sidecar.comparison import MIN_BASELINE, Difference, Point, compare, line, precise
from stepscope_sidecar.labels import in_phases, plural

BASELINES = (40, 20, 10)
"""
How many of the unprofiled steps nearest to the windows to compare with, what tells most being taken: one window alone
needs 38 of them; where work and machine change, few that are near are more alike.
"""

WORTH_TELLING = 0.001
"""A lower bound below a tenth of a percent says no more than that there is none."""

MAX_PROFILED = 20
"""The last profiled steps: what a run's figure is made of. With more, drift over the run would count as noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessStep:
    """
    One process's part of one step. ``productive`` and ``wall`` are seconds, stall lies in neither.
    """

    role: str
    rank: int
    step: int
    profiled: bool
    productive: float
    wall: float
    work: float
    """Units of work done in the productive time; 0 where the spans do not say."""
    stalls: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase."""
    closed: bool = True
    """Whether its window is over; what one costs that is open is not known yet."""

    @property
    def stall(self) -> float:
        """
        Seconds of all phases.
        """
        return sum(self.stalls.values())


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
    A role's overhead over its last profiled steps; None where it is unknown, and ``why`` says why.
    """

    role: str
    stall: float
    """Of all windows."""
    slowdown: float | None
    ratio: float | None
    wall_ratio: float | None
    why: str
    costs: tuple[Cost, ...]
    stalls: Mapping[str, float] = field(default_factory=dict)
    """The stall of all windows by phase."""
    error: float | None = None
    """Of the ratio: half of the interval that holds the truth, also where that is too wide for a figure."""
    lower_bound: float | None = None
    """What the ratio is at least, also where it is unknown for the steps' varying; None where nothing can be said."""
    wall_error: float | None = None
    wall_why: str = ""
    """Why the ratio on wall time is unknown."""
    baseline: int = 0
    """How many unprofiled steps it is compared with."""
    profiled: int = 0
    """How many profiled steps it is of."""

    @property
    def least(self) -> float | None:
        """
        What budgets act on: the ratio, or what it is at least where it is unknown.
        """
        return self.lower_bound if self.ratio is None else self.ratio

    @property
    def unknown(self) -> str:
        """
        What is said of a ratio that is unknown: why, and what is known of it all the same.
        """
        if self.lower_bound is None or self.lower_bound < WORTH_TELLING:
            return self.why
        return f"at least {self.lower_bound:+.1%}; {self.why}"

    def json(self) -> dict[str, object]:
        """
        What ``/api/status`` says of it; the costliest window of each step is in ``/api/steps``.
        """
        return {
            "ratio": self.ratio,
            "error": self.error,
            "lower_bound": self.lower_bound,
            "why": self.why,
            "unknown": self.unknown,
            "wall_ratio": self.wall_ratio,
            "wall_error": self.wall_error,
            "wall_why": self.wall_why,
            "slowdown_seconds": self.slowdown,
            "stall_seconds": dict(self.stalls),
            "baseline": self.baseline,
            "profiled": self.profiled,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Share:
    """
    A part in units of its own process: ``rate`` is 1 where a unit of work took what it usually takes there.
    """

    part: ProcessStep
    rate: float
    amount: float
    """Seconds that its work usually takes."""
    work: float
    """Its work, against what the process usually does in a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """
    Profiled parts and what they are compared with.
    """

    profiled: Sequence[ProcessStep]
    usual: Sequence[Point]
    spent: Sequence[_Share]
    """Those of the profiled parts of whose process is known what is usual."""
    found: Difference | None
    why: str

    @property
    def known(self) -> Difference | None:
        """
        The difference, if it is one to tell.
        """
        return self.found if self.found is not None and self.found.known else None


Seconds = Callable[[ProcessStep], float]


def estimate(parts: Iterable[ProcessStep], *, recorded: Iterable[int] = ()) -> dict[str, Estimate]:
    """
    The overhead of each role that has a profiled step.

    ``recorded`` are steps with a window of anybody, also of a process that has no part here.
    """
    known = list(parts)
    windows = {part.step for part in known if part.profiled} | set(recorded)
    # A step next to a window is no baseline for anybody: others wait for the profiled process, caches are cold.
    touched = {step + near for step in windows for near in (-1, 0, 1)} | {1}
    return {
        role: _estimate(role, [part for part in known if part.role == role], touched)
        for role in sorted({part.role for part in known if part.profiled and part.closed})
    }


def _estimate(role: str, parts: Sequence[ProcessStep], touched: set[int]) -> Estimate:
    windows = [part for part in parts if part.profiled and part.closed]
    steps = sorted({part.step for part in windows})
    older, last = steps[:-MAX_PROFILED], steps[-MAX_PROFILED:]
    costs: list[Cost] = []
    for begin in range(0, len(older), MAX_PROFILED):
        costs += _costs(_group(parts, older[begin : begin + MAX_PROFILED], touched, _productive, by_work=True))
    group = _group(parts, last, touched, _productive, by_work=True)
    wall = _group(parts, last, touched, _wall, by_work=False)
    stalls: Counter[str] = Counter()
    for part in windows:
        stalls.update(part.stalls)
    known = group.known
    return Estimate(
        role=role,
        stall=sum(stalls.values()),
        slowdown=known.ratio * known.normal - _stall(group.spent) if known else None,
        ratio=known.ratio if known else None,
        wall_ratio=wall.known.ratio if wall.known else None,
        why=group.why,
        costs=(*costs, *_costs(group)),
        stalls=in_phases(stalls),
        error=group.found.error if group.found else None,
        lower_bound=group.found.lower_bound if group.found else None,
        wall_error=wall.found.error if wall.found else None,
        wall_why=wall.why,
        baseline=len(group.usual),
        profiled=len({part.step for part in group.profiled}),
    )


def _group(
    parts: Sequence[ProcessStep], steps: Sequence[int], touched: set[int], seconds: Seconds, *, by_work: bool
) -> _Group:
    """
    The profiled ones of ``steps`` against the unprofiled steps nearest to them.
    """
    chosen = set(steps)
    profiled = [part for part in parts if part.profiled and part.closed and part.step in chosen]
    ranks = {part.rank for part in profiled}
    free = {part.step for part in parts if part.rank in ranks} - touched
    near = sorted(free, key=lambda step: min(abs(step - other) for other in steps))
    sizes = [size for size in BASELINES if size < len(near)]
    groups = []
    for size in (len(near), *sizes) if len(near) <= BASELINES[0] else sizes:
        among = set(near[:size])
        baseline = [part for part in parts if part.rank in ranks and part.step in among]
        groups.append(_against(baseline, profiled, seconds, by_work=by_work))
    return min(groups, key=_vagueness)


def _against(
    baseline: Sequence[ProcessStep], profiled: Sequence[ProcessStep], seconds: Seconds, *, by_work: bool
) -> _Group:
    by_work = by_work and all(part.work > 0 for part in [*baseline, *profiled])
    usual, spent = _shares(baseline, profiled, seconds, by_work=by_work)
    points = _points(usual)
    found = compare(points, _points(spent), stall=_stall(spent))
    steps = len({part.step for part in baseline})
    if found is not None:
        why = found.why
    elif steps < MIN_BASELINE:
        why = f"{plural(steps, 'unprofiled step')}, {MIN_BASELINE} are needed"
    else:
        why = "no productive time in unprofiled steps"
    return _Group(profiled=profiled, usual=points, spent=spent, found=found, why=why)


def _vagueness(group: _Group) -> tuple[bool, float]:
    return group.known is None, group.found.error if group.found is not None else 0.0


def _shares(
    baseline: Sequence[ProcessStep], profiled: Sequence[ProcessStep], seconds: Seconds, *, by_work: bool
) -> tuple[list[_Share], list[_Share]]:
    """
    Parts by what is usual in their process, since ranks differ in what they do; none of which that is not known.
    """
    of_rank: dict[int, list[ProcessStep]] = defaultdict(list)
    for part in baseline:
        of_rank[part.rank].append(part)
    usual: dict[int, tuple[float, float]] = {}
    for rank, found in of_rank.items():
        pace = median(seconds(part) / (part.work if by_work else 1.0) for part in found)
        if pace > 0 and len(found) >= MIN_BASELINE:
            usual[rank] = pace, median(part.work for part in found) if by_work else 1.0

    def share(part: ProcessStep) -> _Share:
        pace, work = usual[part.rank]
        done = part.work if by_work else 1.0
        return _Share(part=part, rate=seconds(part) / (pace * done), amount=pace * done, work=done / work)

    of_known = [[share(part) for part in found if part.rank in usual] for found in (baseline, profiled)]
    return of_known[0], of_known[1]


def _points(shares: Iterable[_Share]) -> list[Point]:
    """
    One point for each step: what hits a step hits all of a role, so that its ranks are no further evidence.
    """
    steps: dict[int, list[_Share]] = defaultdict(list)
    for share in shares:
        steps[share.part.step].append(share)
    return [
        Point(
            step=step,
            rate=sum(share.rate * share.amount for share in found) / sum(share.amount for share in found),
            amount=sum(share.amount for share in found),
            work=sum(share.work for share in found) / len(found),
        )
        for step, found in sorted(steps.items())
    ]


def _costs(group: _Group) -> list[Cost]:
    """
    What each window cost: known where the figure of all is, and the noise of one step is small beside it too.
    """
    usual = line(group.usual) if group.known else None
    shares = {(share.part.rank, share.part.step): share for share in group.spent}
    costs = []
    for part in group.profiled:
        share = shares.get((part.rank, part.step)) if usual is not None else None
        found = compare(group.usual, _points([share]), stall=part.stall, usual=usual) if share is not None else None
        told = found if found is not None and precise(found.ratio, found.error) else None
        costs.append(
            Cost(
                role=part.role,
                rank=part.rank,
                step=part.step,
                stall=part.stall,
                slowdown=told.ratio * told.normal - part.stall if told else None,
                ratio=told.ratio if told else None,
            )
        )
    return costs


def _stall(shares: Iterable[_Share]) -> float:
    return sum(share.part.stall for share in shares)


def _productive(part: ProcessStep) -> float:
    return part.productive


def _wall(part: ProcessStep) -> float:
    return part.wall
