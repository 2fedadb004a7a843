"""
What one recording has that another of the same process has not: kernels and operators added, gone, slower and others.

Pure. Recordings are compared per unit of work, because steps differ in how much they do: calls by their number,
which is exact, and time, which is not. Time on a shared machine is
noisy in one direction: whatever disturbs makes longer. Where work repeats (mini-batch after mini-batch), the shortest
of the repetitions is compared, call by call; else the median. The band within which nothing is said is in the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import numpy as np

from stepscope_sidecar.traces.devices import work
from stepscope_sidecar.traces.families import family
from stepscope_sidecar.traces.operators import operators
from stepscope_sidecar.traces.trace import Ints, Kind, Places, Trace
from stepscope_sidecar.traces.work import Unit, Work, unit

SIDES = ("kernel", "operator")

BAND = {"kernel": 1.25, "operator": 2.0}
"""
Ratio of times up to which nothing is said, where work repeats: a device is the recording's alone and varies with clocks
and memory; a core of the host is shared, and half of it may be gone for all repetitions of one step.
"""

LONE_BAND = {"kernel": 1.5, "operator": 4.0}
"""The same where it does not repeat, and one disturbed call counts."""

SHARE = 0.01
"""A change of less than this part of all kernels' or operators' time is not worth a word."""

COUNT_BAND = 0.1
"""Difference in calls per sample, token or request up to which nothing is said; of mini-batches, alike, it is 0."""

MIN_NAMES = 10
"""Names that must be in both for a pace that all of them share; of fewer, one changed one would be half of it."""


class What(StrEnum):
    """
    How something differs.
    """

    ADDED = "added"
    GONE = "gone"
    MORE = "more calls"
    FEWER = "fewer calls"
    SLOWER = "slower"
    FASTER = "faster"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """
    One difference; times are per unit of work, without what ran inside.
    """

    what: What
    side: str
    name: str
    count_before: int
    count_after: int
    before_ns: int
    after_ns: int

    def json(self) -> dict[str, str | int]:
        """
        As ``stepscope show --json`` prints it.
        """
        return {
            "what": self.what.value,
            "side": self.side,
            "name": self.name,
            "count_before": self.count_before,
            "count_after": self.count_after,
            "before_ns": self.before_ns,
            "after_ns": self.after_ns,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """
    All differences, those with most time first, and what they are measured by.
    """

    changes: tuple[Change, ...]
    unit: Unit
    before: float
    """Units of work in the earlier recording."""
    after: float
    pace: Mapping[str, float]
    """By side: how many times as long everything took, by the median over names; changes are beyond that."""
    band: Mapping[str, float]
    """By side: the ratio of times up to which nothing is said."""
    compared: Mapping[str, int]
    """By side: the names that are in either; where there is none, nothing was compared."""

    def of(self, what: What, side: str) -> tuple[str, ...]:
        """
        The names that differ so.
        """
        return tuple(change.name for change in self.changes if (change.what, change.side) == (what, side))

    def json(self) -> dict[str, object]:
        """
        As ``stepscope show --json`` prints it.
        """
        return {
            "unit": self.unit.value,
            "units_before": self.before,
            "units_after": self.after,
            "pace": dict(self.pace),
            "noise_band": dict(self.band),
            "noise_share": SHARE,
            "compared": dict(self.compared),
            "changes": [change.json() for change in self.changes],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    """
    One name's calls in both recordings: their lengths in the order of time, none where it is not there.
    """

    name: str
    before: Ints
    after: Ints
    before_ns: float = 0.0
    """Per unit."""
    after_ns: float = 0.0


def difference(before: Trace, after: Trace, *, work_before: Work, work_after: Work) -> Difference:
    """
    What ``after`` has that ``before`` has not.
    """
    by = unit(work_before, work_after)
    amounts = (work_before.amount(by), work_after.amount(by))
    changes: list[Change] = []
    pace, band, compared = {}, {}, {}
    for side, of in zip(SIDES, (_kernels, _operators), strict=True):
        earlier, later = of(before), of(after)
        repeats = (work_before.mini_batches, work_after.mini_batches)
        pairs = [
            _measured(_Pair(name=name, before=earlier.get(name, _NONE), after=later.get(name, _NONE)), amounts, repeats)
            for name in sorted(earlier.keys() | later.keys())
        ]
        compared[side] = len(pairs)
        pace[side] = _pace(pairs)
        band[side] = (BAND if min(repeats) > 1 else LONE_BAND)[side]
        changes += _changes(side, pairs, amounts, by=by, pace=pace[side], band=band[side])
    return Difference(
        changes=tuple(sorted(changes, key=lambda one: -abs(one.after_ns - one.before_ns))),
        unit=by,
        before=amounts[0],
        after=amounts[1],
        pace=pace,
        band=band,
        compared=compared,
    )


_NONE: Ints = np.empty(0, dtype=np.int64)


def _kernels(trace: Trace) -> Mapping[str, Ints]:
    rows = work(trace)
    rows = rows[np.isin(trace.kind[rows], (Kind.KERNEL, Kind.COMMUNICATION))]
    return _lengths(trace, rows, trace.duration_ns[rows])


def _operators(trace: Trace) -> Mapping[str, Ints]:
    ran = operators(trace)
    return _lengths(trace, ran.rows, ran.own_ns)


def _lengths(trace: Trace, rows: Places, lengths: Ints) -> Mapping[str, Ints]:
    """
    The lengths by name, each in the order of time.
    """
    places: dict[str, int] = {}
    alike = np.array([places.setdefault(family(name), len(places)) for name in trace.names], dtype=np.int64)
    if not len(rows):
        return {}
    which = alike[trace.name[rows]]
    order = np.lexsort((trace.start_ns[rows], which))
    found, first = np.unique(which[order], return_index=True)
    names = list(places)
    parts = np.split(lengths[order], first[1:])
    return {names[place]: part for place, part in zip(found.tolist(), parts, strict=True)}


def _measured(pair: _Pair, amounts: tuple[float, float], repeats: tuple[int, int]) -> _Pair:
    sides = tuple(zip((pair.before, pair.after), repeats, amounts, strict=True))
    # Both by the same measure, or they could not be compared.
    repeated = all(count > 1 and len(lengths) % count == 0 for lengths, count, _ in sides)
    before, after = (_typical(lengths, count if repeated else 1, amount) for lengths, count, amount in sides)
    return _Pair(name=pair.name, before=pair.before, after=pair.after, before_ns=before, after_ns=after)


def _typical(lengths: Ints, repeats: int, amount: float) -> float:
    """
    Time per unit, as it would be undisturbed.
    """
    if not len(lengths):
        return 0.0
    if repeats > 1:
        return float(lengths.reshape(repeats, -1).min(axis=0).sum()) * repeats / amount
    return float(np.median(lengths)) * len(lengths) / amount


def _pace(pairs: Sequence[_Pair]) -> float:
    ratios = [pair.after_ns / pair.before_ns for pair in pairs if pair.before_ns > 0 and pair.after_ns > 0]
    return median(ratios) if len(ratios) >= MIN_NAMES else 1.0


def _changes(
    side: str, pairs: Sequence[_Pair], amounts: tuple[float, float], *, by: Unit, pace: float, band: float
) -> list[Change]:
    total = max(sum(pair.before_ns for pair in pairs), sum(pair.after_ns for pair in pairs))
    found = []
    for pair in pairs:
        what = _presence(pair, amounts, exact=by in {Unit.MINI_BATCH, Unit.STEP})
        if what is None:
            what = _speed(pair, amounts, pace=pace, band=band, floor=SHARE * total)
        if what is not None:
            found.append(
                Change(
                    what=what,
                    side=side,
                    name=pair.name,
                    count_before=len(pair.before),
                    count_after=len(pair.after),
                    before_ns=round(pair.before_ns),
                    after_ns=round(pair.after_ns),
                )
            )
    return found


def _presence(pair: _Pair, amounts: tuple[float, float], *, exact: bool) -> What | None:
    before, after = len(pair.before), len(pair.after)
    if not before:
        return What.ADDED
    if not after:
        return What.GONE
    # Some is done once in a step and some in each unit, so what is expected lies between the two.
    scaled = before * amounts[1] / amounts[0]
    slack = 0.0 if exact else COUNT_BAND * before
    if after > max(before, scaled) + slack:
        return What.MORE
    return What.FEWER if after < min(before, scaled) - slack else None


def _speed(pair: _Pair, amounts: tuple[float, float], *, pace: float, band: float, floor: float) -> What | None:
    # By call, because what is done once in a step takes less per unit in a step of more units.
    before, after = pair.before_ns * amounts[0] / len(pair.before) * pace, pair.after_ns * amounts[1] / len(pair.after)
    if abs(after - before) * len(pair.after) / amounts[1] < floor:
        return None
    if after > before * band:
        return What.SLOWER
    return What.FASTER if after * band < before else None
