"""
What really ran: markers around operators, named for their step, and the seconds that profiling took, on the same clock.

Owns the names of markers and the log that each process keeps of what it did. Knows nothing of any profiler: a marker is
an annotation around a real operator, whoever records it.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import record_function

PREFIX = "marker."
"""Begins the name of every marker, and of nothing else."""

ARMED, STALL, UPDATE, WHOLE = "armed", "stall", "update", "whole"
"""What seconds are for: from entering a step to a profiler that is on; calls of profiling; an update of the weights; a
step with all that follows it, up to the next one."""

STARTS = "starts"
"""How often ``ARMED`` was counted."""

MARKER = re.compile(r"marker\.(?:step-(\d{6})|(validation|checkpoint)-(\d{6}))\.(.+)")
"""Work of a step, or what follows an update and belongs to no window."""


def work(step: int, what: str) -> str:
    """
    The marker of ``what`` in ``step``.
    """
    return f"{PREFIX}step-{step:06d}.{what}"


def validation(version: int, what: str) -> str:
    """
    The marker of a validation after update ``version``.
    """
    return f"{PREFIX}validation-{version:06d}.{what}"


def checkpoint(version: int, what: str) -> str:
    """
    The marker of the checkpoint after update ``version``.
    """
    return f"{PREFIX}checkpoint-{version:06d}.{what}"


def step_of(marker: str) -> int | None:
    """
    The step that ``marker`` is work of; None for a validation and a checkpoint.
    """
    found = MARKER.fullmatch(marker)
    if found is None:
        raise ValueError(f"{marker!r} is no marker")
    return int(found[1]) if found[1] else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """
    What one process did: steps that it began, its markers, and seconds by what they were for and by step.
    """

    role: str
    rank: int
    begun: frozenset[int] = frozenset()
    markers: frozenset[str] = frozenset()
    seconds: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    left_on: int = 0
    stops_without_start: int = 0

    def of_step(self, step: int) -> frozenset[str]:
        """
        The markers of the work of ``step``.
        """
        return frozenset(marker for marker in self.markers if step_of(marker) == step)


class Log:
    """
    One process's own. Kept in memory, because writing would be a load of its own; written once, at the end.
    """

    def __init__(self, *, role: str, rank: int) -> None:
        """
        Of ``rank`` of ``role``.
        """
        self._role, self._rank = role, rank
        self._begun: list[int] = []
        self._markers: list[str] = []
        self._seconds: dict[str, dict[int, float]] = {}
        self.clock = time.perf_counter

    def begin(self, step: int) -> None:
        """
        The process is in ``step`` now, whether or not there will be work for it.
        """
        self._begun.append(step)

    @contextmanager
    def marked(self, name: str) -> Iterator[None]:
        """
        Around operators; there is one at least.
        """
        with record_function(name):
            torch.zeros(1).add_(1)
            yield
        self._markers.append(name)

    def point(self, name: str) -> None:
        """
        A marker around one operator.
        """
        with self.marked(name):
            pass

    def add(self, what: str, *, step: int, seconds: float) -> None:
        """
        So many more ``seconds`` of ``step`` went to ``what``.
        """
        of = self._seconds.setdefault(what, {})
        of[step] = of.get(step, 0.0) + seconds

    def armed(self, *, step: int, after: float, stall: float) -> None:
        """
        A profiler is on, ``after`` so many seconds of ``step``; the process stood still for ``stall`` of them.
        """
        self.add(ARMED, step=step, seconds=after)
        self.add(STARTS, step=step, seconds=1)
        self.add(STALL, step=step, seconds=stall)

    @contextmanager
    def timed(self, what: str, *, step: int) -> Iterator[None]:
        """
        The block's seconds, also when it raises.
        """
        begun = self.clock()
        try:
            yield
        finally:
            self.add(what, step=step, seconds=self.clock() - begun)

    def write(self, folder: Path, *, left_on: int, stops_without_start: int) -> None:
        """
        All of it, with how many profilers are on at the end.
        """
        folder.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {
            "role": self._role,
            "rank": self._rank,
            "begun": self._begun,
            "markers": self._markers,
            "seconds": self._seconds,
            "left_on": left_on,
            "stops_without_start": stops_without_start,
        }
        (folder / f"{self._role}-{self._rank}.json").write_text(json.dumps(content))


def read(folder: Path) -> Sequence[Record]:
    """
    What the processes of a run wrote.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        content.update(begun=frozenset(content["begun"]), markers=frozenset(content["markers"]))
        content["seconds"] = {
            what: {int(step): seconds for step, seconds in of.items()} for what, of in content["seconds"].items()
        }
        found.append(Record(**content))
    return found


def profilers_on() -> int:
    """
    How many profilers of torch are on in this process: its own flag, or this thread's.
    """
    profiler: Any = torch.autograd.profiler
    here: Any = torch._C._autograd
    return int(bool(profiler._is_profiler_enabled) or bool(here._profiler_enabled()))
