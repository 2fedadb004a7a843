"""
Reads the steps of a run out of its store, and has ``overhead`` estimate what profiling cost.

Works on the store's file, with and without a sidecar. Keeps what it has made of each step, so that looking again every
few seconds costs little: a step is read again when there are more spans of it, or something else to be said of its
windows. Blocking: for a thread of its own.
"""

import sqlite3
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from stepscope import names
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar import schema
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.overhead import Estimate, ProcessStep, estimate
from stepscope_sidecar.reader import EACH_STEP
from stepscope_sidecar.rows import WindowRow, load

WORK = (names.WORK, names.TOKENS, names.SAMPLES)
"""Attributes that say how much was done in a span, the first that is there counts."""

STALL_IN_STEP = ("stop", "export")
"""Phases that lie within the step where a window closed before its end."""

STALL_BEFORE = ("open", "start")
"""Phases that are over when a window has opened, and lie within the step where it was opened in the midst of it."""

Key = tuple[str, int]
"""Role and rank."""


@dataclass(kw_only=True, slots=True)
class _Part:
    """
    One process's part of a step while it is being read.
    """

    wall: list[tuple[int, int]] = field(default_factory=list)
    work: float = 0.0
    productive: list[tuple[int, int]] = field(default_factory=list)
    over: bool = False
    partial: bool = False


Windows = Mapping[Key, Sequence[WindowRow]]
"""
Those of one step. More than one of a rank where it started again in the step, on another node or with another tool.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """
    The parts of one step that are over, and which windows they were made with.
    """

    windows: Windows
    parts: list[ProcessStep]


class Costs:
    """
    The estimates of one attempt. Use it in one thread at a time.
    """

    def __init__(self, path: Path) -> None:
        """
        Read the store at ``path``.
        """
        self._path = path
        self._made: dict[int, _Made] = {}
        self._steps: list[int] = []
        self._seen = 0
        self._rows: dict[tuple[object, ...], WindowRow] = {}
        self._found: dict[str, Estimate] | None = None

    def refresh(self) -> dict[str, Estimate]:
        """
        The overhead by role, from what the store has by now; nothing while no window has recorded.

        Raises:
            StoreError: there is no store, or it cannot be read.
        """
        connection = schema.open_for_reading(self._path)
        try:
            (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM spans").fetchone()
            rows = {tuple(row): row for row in _recorded(connection)}
            if self._found is not None and last == self._seen and rows.keys() == self._rows.keys():
                return self._found
            self._found = None
            self._rows = {values: self._rows.get(values) or load(WindowRow, row) for values, row in rows.items()}
            # One that goes along with another records another process: what the role itself paid is that one's.
            windows = [row for row in self._rows.values() if not row.other.get("beside")]
            if not windows:
                return {}
            self._learn(connection, last)
            profiled: dict[int, dict[Key, list[WindowRow]]] = defaultdict(lambda: defaultdict(list))
            for row in windows:
                for step in self._steps[bisect_left(self._steps, row.step) : bisect_right(self._steps, row.last_step)]:
                    profiled[step][row.role, row.rank].append(row)
            parts = [part for step in self._steps for part in self._parts(connection, step, profiled.get(step, {}))]
            # A process that was lost in a step has no part in it, and its window is near others' steps all the same.
            self._found = estimate(parts, recorded=set(profiled))
            return self._found
        except sqlite3.Error as error:
            raise StoreError(f"cannot read the store {self._path}: {error}") from error
        finally:
            connection.close()

    def _learn(self, connection: sqlite3.Connection, last: int) -> None:
        """
        Which steps there are by now, up to span ``last``. Those of which there are more spans are forgotten: those of a
        process may come long after another's.
        """
        query = "SELECT DISTINCT step FROM spans WHERE id > ? AND id <= ?"
        # At first it is all steps, for which the index need not be looked through.
        found = connection.execute(query, (self._seen, last)) if self._seen else connection.execute(EACH_STEP)
        changed = {step for (step,) in found if step is not None and step > 0}
        for step in changed:
            self._made.pop(step, None)
        self._steps = sorted(changed.union(self._steps))
        self._seen = last

    def _parts(self, connection: sqlite3.Connection, step: int, windows: Windows) -> list[ProcessStep]:
        made = self._made.get(step)
        if made is None or made.windows != windows:
            parts = [
                _process_step(key, step, part, windows.get(key, ()))
                for key, part in _read(connection, step).items()
                if part.over and not part.partial
            ]
            # Not the spans' times, of which there are dozens to each part.
            made = self._made[step] = _Made(windows=windows, parts=parts)
        return made.parts


def _recorded(connection: sqlite3.Connection) -> Iterator[sqlite3.Row]:
    yield from connection.execute("SELECT * FROM windows WHERE opened_unix_ns > 0")
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'node_windows'").fetchall():
        # Spans of the same attempt's other nodes come here too.
        yield from connection.execute(
            "SELECT * FROM node_windows WHERE opened_unix_ns > 0"
            " AND attempt = (SELECT value FROM meta WHERE key = 'attempt')"
        )


def _read(connection: sqlite3.Connection, step: int) -> dict[Key, _Part]:
    found: dict[Key, _Part] = {}
    rows = connection.execute(
        "SELECT name, role, rank, start_unix_ns, end_unix_ns, attributes FROM spans WHERE step = ?"
        " AND role IS NOT NULL AND rank IS NOT NULL"
        " AND (name = ? OR json_extract(attributes, ?) = ?)",
        (step, names.RL_STEP_PROCESS, f'$."{names.BUCKET}"', names.Bucket.PRODUCTIVE.value),
    )
    for row in rows:
        part = found.setdefault((row["role"], row["rank"]), _Part())
        start, end = row["start_unix_ns"], row["end_unix_ns"]
        attributes = orjson.loads(row["attributes"])
        if row["name"] == names.RL_STEP_PROCESS:
            part.wall.append((start, end))
            part.over = True
            part.partial = part.partial or bool(attributes.get(names.PARTIAL))
        else:
            part.productive.append((start, end))
            part.work += next((float(attributes[name]) for name in WORK if _number(attributes.get(name))), 0.0)
    return found


def _process_step(key: Key, step: int, part: _Part, windows: Sequence[WindowRow]) -> ProcessStep:
    paid = [(window, _paid(window, step)) for window in windows]
    stalls: Counter[str] = Counter()
    for _, phases in paid:
        stalls.update(phases)
    # That time is stall, and not slowdown too.
    cut = [interval for window, phases in paid for interval in _stalled(window, phases)]
    return ProcessStep(
        role=key[0],
        rank=key[1],
        step=step,
        profiled=bool(windows),
        productive=union(part.productive, without=cut) / 1e9,
        wall=union(part.wall, without=cut) / 1e9,
        work=part.work,
        stalls=stalls,
        # What stopping costs is told when the window is closed, which is after the step has ended.
        closed=all(window.closed_unix_ns > 0 for window in windows),
    )


def _paid(window: WindowRow, step: int) -> Mapping[str, float]:
    """
    The stall of ``window`` that is put down to ``step``, by phase.
    """
    if window.last_step == window.step:
        return window.stall_seconds
    # What starting cost was paid for the first of the steps that share it, what stopping cost for the last.
    first, last = step == window.step, step == window.last_step
    return {
        phase: taken for phase, taken in window.stall_seconds.items() if (last if phase in STALL_IN_STEP else first)
    }


def _stalled(window: WindowRow, phases: Mapping[str, float]) -> Iterator[tuple[int, int]]:
    """
    When the process stood still for ``phases``. It is outside the step, and of no concern, where the window opened and
    closed at the step's boundaries.
    """
    opened, closed = window.opened_unix_ns, window.closed_unix_ns
    yield closed, closed + _nanoseconds(phases, STALL_IN_STEP)
    # A tool that is attached begins some time after the process has gone on.
    if window.tool not in LEAVES:
        yield opened - _nanoseconds(phases, STALL_BEFORE), opened


def _nanoseconds(phases: Mapping[str, float], of: Iterable[str]) -> int:
    return int(sum(phases.get(phase, 0.0) for phase in of) * 1e9)


def union(intervals: Iterable[tuple[int, int]], *, without: Iterable[tuple[int, int]] = ()) -> int:
    """
    How long at least one of ``intervals`` lasted and none of ``without``: requests run side by side.
    """
    cut = list(without)
    return _length([*intervals, *cut]) - _length(cut)


def _length(intervals: Iterable[tuple[int, int]]) -> int:
    total, reached = 0, None
    for start, end in sorted(intervals):
        begin = start if reached is None else max(start, reached)
        if end > begin:
            total += end - begin
            reached = end
    return total


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
