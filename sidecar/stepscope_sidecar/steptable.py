"""
The table of steps: what each step took, learned and cost, and whether it was recorded.

Pure but for :func:`step_rows`, which reads a store. Used by the page, by ``/api/steps`` and by the command line, so
that all of them say the same. How overhead is estimated is ``overhead``'s affair.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from stepscope import names
from stepscope_sidecar import orphans
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.labels import step_name
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.rows import SampleRow, SpanRow, Value, WindowRow

TRAINER = "trainer"
ROLLOUTER = "rollouter"

UNKNOWN = "unknown"
"""What is shown for a figure that cannot be given; never 0."""


class Source(Protocol):
    """
    What a table is read from: ``reader.Reader``.
    """

    @property
    def path(self) -> Path:
        """
        The store's file.
        """

    def steps(self) -> list[int]:
        """
        The steps that any span tells of.
        """

    def spans(self, *, step: int | None = None, name: str | None = None) -> list[SpanRow]:
        """
        Spans of that step and name.
        """

    def windows(self, *, step: int | None = None) -> list[WindowRow]:
        """
        Windows of that step, or all.
        """

    def elsewhere(self, *, step: int | None = None) -> list[WindowRow]:
        """
        The same of other nodes.
        """

    def samples(self, *, step: int | None = None) -> list[SampleRow]:
        """
        Samples consumed in that step, or all.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRow:
    """
    One step. Seconds are those of a role's slowest rank; None is unknown.
    """

    step: int
    version: int
    """The version in force while the step ran; the step makes the next one."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By role, from entering the step to its boundary."""
    reward: float | None = None
    staleness: float | None = None
    """Mean over the samples whose version is known."""
    staleness_unknown: int = 0
    """Samples whose version is not known."""
    windows: dict[str, int] = field(default_factory=dict)
    """How many windows there are, by state."""
    overhead_ratio: float | None = None
    """Of the profiled process that it cost most."""
    overhead_seconds: float | None = None
    partial: bool = False
    """Work after the last update: no step of the run."""

    @property
    def title(self) -> str:
        """
        The step as every surface prints it.
        """
        return step_name(self.step, partial=self.partial)

    @property
    def trainer_seconds(self) -> float | None:
        """
        Seconds of the slowest trainer.
        """
        return self.seconds.get(TRAINER)

    @property
    def rollouter_seconds(self) -> float | None:
        """
        Seconds of the slowest rollouter.
        """
        return self.seconds.get(ROLLOUTER)

    @property
    def recorded(self) -> str:
        """
        Its windows by state, or "" where none was asked for.
        """
        order = [state.value for state in names.State]
        found = sorted(self.windows.items(), key=lambda item: -order.index(item[0]) if item[0] in order else 0)
        ready = [f"{count} {state}" for state, count in found if state == names.State.READY]
        return ", ".join(ready + [f"{count} {state}" for state, count in found if state != names.State.READY])

    @property
    def overhead(self) -> str:
        """
        What recording it cost, for a person: "" where nothing was recorded.
        """
        if not self.windows.get(names.State.READY):
            return ""
        return UNKNOWN if self.overhead_ratio is None else f"{self.overhead_ratio:+.1%}"

    def json(self) -> dict[str, Value]:
        """
        The object that ``/api/steps`` answers.
        """
        return {**asdict(self), "title": self.title, "recorded": self.recorded, "overhead": self.overhead}


def step_rows(
    source: Source,
    *,
    estimates: Mapping[str, Estimate] | None = None,
    last: int | None = None,
    only: Sequence[int] | None = None,
) -> list[StepRow]:
    """
    The table of the run in ``source``, oldest first; of its ``last`` steps only, or of ``only`` these, each of which
    has a row also where nothing of it has ended.

    ``estimates`` are made of the store where nobody has made them already.
    """
    if estimates is None:
        estimates = Costs(source.path).refresh()
    attended = orphans.attended(source.path.parent)
    windows = [*orphans.shown(source.windows(), attended=attended), *source.elsewhere()]
    steps = sorted({*source.steps(), *(window.step for window in windows)})
    wanted = set(only if only is not None else steps if last is None else steps[-last:] if last else [])
    parts: list[SpanRow] = []
    samples: list[SampleRow] = []
    if last is None and only is None:
        parts = source.spans(name=names.RL_STEP_PROCESS) + source.spans(name=names.TRAIN_UPDATE_ACTOR)
        samples = source.samples()
    else:
        for step in sorted(wanted):
            parts += source.spans(step=step, name=names.RL_STEP_PROCESS)
            parts += source.spans(step=step, name=names.TRAIN_UPDATE_ACTOR)
            samples += source.samples(step=step)
    rows = table(
        parts,
        windows=[window for window in windows if any(map(window.covers, wanted))],
        samples=samples,
        estimates=estimates,
        steps=only or (),
    )
    return [row for row in rows if row.step in wanted]


def table(
    spans: Iterable[SpanRow],
    *,
    windows: Iterable[WindowRow] = (),
    samples: Iterable[SampleRow] = (),
    estimates: Mapping[str, Estimate] | None = None,
    steps: Iterable[int] = (),
) -> list[StepRow]:
    """
    One row for each step that a process has left or a window was asked for, and for each of ``steps``, oldest first.

    Nothing goes from a window's first step to its last one by one: the last is what somebody says.
    """
    windows = list(windows)
    entered: dict[int, list[SpanRow]] = defaultdict(list)
    updates: dict[int, list[SpanRow]] = defaultdict(list)
    for span in spans:
        if span.step is not None and span.name == names.RL_STEP_PROCESS:
            entered[span.step].append(span)
        elif span.step is not None and span.name == names.TRAIN_UPDATE_ACTOR:
            updates[span.step].append(span)
    steps = sorted({*steps, *entered, *updates, *(window.step for window in windows)})
    states = _states(windows, steps)
    ages, ageless = _ages(samples)
    costs = _costs(estimates or {})
    return [
        StepRow(
            step=step,
            version=step - 1,
            seconds=_seconds(entered[step]),
            reward=_reward(entered[step], updates[step]),
            staleness=_mean(ages[step]),
            staleness_unknown=ageless[step],
            windows=states[step],
            overhead_ratio=costs.get(step, (None, None))[0],
            overhead_seconds=costs.get(step, (None, None))[1],
            partial=any(span.attributes.get(names.PARTIAL) is True for span in entered[step]),
        )
        for step in steps
    ]


def _states(windows: Sequence[WindowRow], steps: Sequence[int]) -> dict[int, dict[str, int]]:
    """
    How many windows cover each of ``steps``, which are sorted, by state.
    """
    changes: list[Counter[str]] = [Counter() for _ in range(len(steps) + 1)]
    for window in windows:
        changes[bisect_left(steps, window.step)][window.state] += 1
        changes[bisect_right(steps, window.last_step)][window.state] -= 1
    found: dict[int, dict[str, int]] = {}
    open_now: Counter[str] = Counter()
    for step, change in zip(steps, changes, strict=False):
        open_now.update(change)
        found[step] = {state: count for state, count in open_now.items() if count}
    return found


def _seconds(spans: Sequence[SpanRow]) -> dict[str, float]:
    longest: dict[str, float] = {}
    for span in spans:
        if span.role is not None:
            seconds = (span.end_unix_ns - span.start_unix_ns) / 1e9
            longest[span.role] = max(seconds, longest.get(span.role, 0.0))
    return longest


def _reward(entered: Sequence[SpanRow], updates: Sequence[SpanRow]) -> float | None:
    """
    The mean reward of a step's samples: what a trainer says of its step, else of its mini-batches.
    """
    for spans in (entered, updates):
        told = [
            (reward, _number(span.attributes.get(names.SAMPLES)) or 1.0)
            for span in spans
            if span.role == TRAINER and (reward := _number(span.attributes.get(names.REWARD))) is not None
        ]
        if told:
            return sum(reward * weight for reward, weight in told) / sum(weight for _, weight in told)
    return None


def _ages(samples: Iterable[SampleRow]) -> tuple[dict[int, list[float]], Counter[int]]:
    """
    Staleness of each sample by step, and how many are unknown. Of several versions the oldest counts.
    """
    known: dict[int, list[float]] = defaultdict(list)
    unknown: Counter[int] = Counter()
    for sample in samples:
        if sample.oldest_version is None:
            unknown[sample.step] += 1
        else:
            known[sample.step].append(float(sample.param_version - sample.oldest_version))
    return known, unknown


def _costs(estimates: Mapping[str, Estimate]) -> dict[int, tuple[float | None, float | None]]:
    """
    Ratio and seconds of the process that a step's windows cost most, by step.
    """
    worst: dict[int, tuple[float | None, float | None]] = {}
    for estimate in estimates.values():
        for cost in estimate.costs:
            seconds = None if cost.slowdown is None else cost.stall + cost.slowdown
            before = worst.get(cost.step, (None, None))[0]
            if before is None or (cost.ratio is not None and cost.ratio > before):
                worst[cost.step] = (cost.ratio, seconds)
    return worst


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
