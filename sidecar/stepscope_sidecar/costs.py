"""
Reads the steps of a run out of its store, and has ``overhead`` estimate what profiling cost.

Works on the store's file, with and without a sidecar. Keeps what it has read of steps that are over, so that looking
again every few seconds costs little. Blocking: for a thread of its own.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from stepscope import names
from stepscope_sidecar import schema
from stepscope_sidecar.overhead import Estimate, ProcessStep, estimate

SETTLED = 3
"""A step so far behind the newest gets no more spans: the processes' clocks of steps differ by one or two."""

WORK = (names.WORK, names.TOKENS, names.SAMPLES)
"""Attributes that say how much was done in a span, the first that is there counts."""

STALL_IN_STEP = ("stop", "export")
"""Phases that lie within the step where a window closed before its end."""

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


class Costs:
    """
    The estimates of one attempt. Use it in one thread at a time.
    """

    def __init__(self, path: Path) -> None:
        """
        Read the store at ``path``.
        """
        self._path = path
        self._settled: dict[int, dict[Key, _Part]] = {}

    def refresh(self) -> dict[str, Estimate]:
        """
        The overhead by role, from what the store has by now; nothing while no window has recorded.

        Raises:
            StoreError: there is no store, or it cannot be read.
        """
        connection = schema.open_for_reading(self._path)
        try:
            windows = connection.execute(
                "SELECT role, rank, step, closed_unix_ns, stall_seconds FROM windows WHERE opened_unix_ns > 0"
            ).fetchall()
            if not windows:
                return {}
            steps = [row[0] for row in connection.execute("SELECT DISTINCT step FROM spans WHERE step > 0")]
            newest = max(steps, default=0)
            parts: list[ProcessStep] = []
            profiled = {(row["role"], row["rank"], row["step"]): row for row in windows}
            for step in sorted(steps):
                found = self._settled.get(step)
                if found is None:
                    found = _read(connection, step)
                    if step <= newest - SETTLED:
                        self._settled[step] = found
                parts += [
                    _process_step(key, step, part, profiled.get((*key, step)))
                    for key, part in found.items()
                    if part.over and not part.partial
                ]
            return estimate(parts)
        finally:
            connection.close()


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


def _process_step(key: Key, step: int, part: _Part, window: sqlite3.Row | None) -> ProcessStep:
    stalls: dict[str, float] = orjson.loads(window["stall_seconds"]) if window is not None else {}
    stopped = int(sum(stalls.get(phase, 0.0) for phase in STALL_IN_STEP) * 1e9)
    closed = window["closed_unix_ns"] if window is not None else 0
    # A window that closed within the step stopped its profiler there: that time is stall, and not slowdown too.
    stall = (closed, closed + stopped)
    return ProcessStep(
        role=key[0],
        rank=key[1],
        step=step,
        profiled=window is not None,
        productive=union(part.productive, without=stall) / 1e9,
        wall=union(part.wall, without=stall) / 1e9,
        work=part.work,
        stall=sum(stalls.values()),
    )


def union(intervals: Iterable[tuple[int, int]], *, without: tuple[int, int] = (0, 0)) -> int:
    """
    How long at least one of ``intervals`` lasted, less what of it fell in ``without``: requests run side by side.
    """
    total, reached = 0, 0
    for start, end in sorted(intervals):
        begin = max(start, reached)
        if end > begin:
            total += end - begin - max(0, min(end, without[1]) - max(begin, without[0]))
            reached = end
    return total


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
