"""
What the columns of the table say, computed from what really ran and from what was recorded. Pure.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from tests.bench.windows import truth
from tests.bench.windows.recordings import Recording
from tests.bench.windows.truth import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """
    One process's recordings against its record. All but the first four count errors.
    """

    artifacts: tuple[int, ...]
    named_right: int
    expected_markers: int
    found_markers: int
    without_artifact: int
    unexpected: int
    misnamed: int
    of_other_steps: int
    missing: int
    after_update: int

    @property
    def errors(self) -> dict[str, int]:
        """
        What there may be none of in a recording that is exact, by name.
        """
        counted = {"without_artifact", "unexpected", "misnamed", "of_other_steps", "missing", "after_update"}
        found = {item.name: int(getattr(self, item.name)) for item in fields(self) if item.name in counted}
        return {**found, "more_than_one": sum(count > 1 for count in self.artifacts)}


def judge(record: Record, recordings: Iterable[Recording], *, selected: Sequence[int]) -> Judgement:
    """
    What ``recordings`` made of the steps ``selected``, as far as the process of ``record`` has begun them.

    Operators of other steps are those of another than the recording was meant for, whatever its name says: a wrong name
    is counted once, as that. What is missing of a step is in none of its recordings.
    """
    mine = [each for each in recordings if (each.role, each.rank) == (record.role, record.rank)]
    begun = [step for step in selected if step in record.begun]
    by_step: dict[int, list[Recording]] = {step: [each for each in mine if each.meant == step] for step in begun}
    expected = {step: record.of_step(step) for step in begun}
    found = {step: frozenset[str]().union(*(each.markers for each in of)) for step, of in by_step.items()}
    other, after = 0, 0
    for each in mine:
        steps = [truth.step_of(marker) for marker in each.markers]
        after += steps.count(None)
        other += sum(step is not None and step != each.meant for step in steps)
    right = sum(each.named == each.meant for each in mine)
    return Judgement(
        artifacts=tuple(len(of) for of in by_step.values()),
        named_right=right,
        expected_markers=sum(map(len, expected.values())),
        found_markers=sum(len(expected[step] & found[step]) for step in begun),
        without_artifact=sum(not of for of in by_step.values()),
        unexpected=sum(each.meant not in begun for each in mine),
        misnamed=len(mine) - right,
        of_other_steps=other,
        missing=sum(len(expected[step] - found[step]) for step in begun),
        after_update=after,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """
    Median and greatest of what was measured, in seconds.
    """

    median: float
    most: float


def _seconds(values: Sequence[float]) -> Seconds | None:
    return Seconds(median=statistics.median(values), most=max(values)) if values else None


def armed(record: Record, *, selected: Sequence[int]) -> Seconds | None:
    """
    From entering a step to a profiler that is on, of each start in the steps ``selected``.
    """
    seconds, starts = record.seconds.get(truth.ARMED, {}), record.seconds.get(truth.STARTS, {})
    return _seconds([seconds[step] / starts[step] for step in selected if step in seconds])


def stall_per_step(record: Record, *, selected: Sequence[int]) -> Seconds | None:
    """
    What the calls took in a selected step beyond what the same calls take in others (but the first).
    """
    stalls = record.seconds.get(truth.STALL, {})
    usual = [seconds for step, seconds in stalls.items() if step not in selected and step > 1]
    base = statistics.median(usual) if usual else 0.0
    return _seconds([stalls[step] - base for step in selected if step in stalls])


def stall_per_window(record: Record, recordings: Iterable[Recording], *, selected: Sequence[int]) -> Seconds | None:
    """
    The same for each recording of the step.
    """
    of_step = stall_per_step(record, selected=selected)
    mine = [each for each in recordings if (each.role, each.rank) == (record.role, record.rank)]
    if of_step is None or not mine:
        return None
    windows = len(mine) / len({each.meant for each in mine})
    return Seconds(median=of_step.median / windows, most=of_step.most / windows)


def whole_step(record: Record, *, selected: Sequence[int]) -> Seconds | None:
    """
    A selected step from entering it to entering the next: the work, slower or not, and every stall.
    """
    return _seconds([seconds for step, seconds in record.seconds.get(truth.WHOLE, {}).items() if step in selected])


def update_delay(record: Record, *, touched: frozenset[int]) -> Seconds | None:
    """
    How much longer the updates ``touched`` took, those that end or begin a selected step, than the others (but the
    first).
    """
    updates: Mapping[int, float] = record.seconds.get(truth.UPDATE, {})
    usual = [seconds for version, seconds in updates.items() if version not in touched and version > 1]
    base = statistics.median(usual) if usual else 0.0
    return _seconds([seconds - base for version, seconds in updates.items() if version in touched])
