"""
What ran on an Ascend device, read from analysed data: SQLite databases, else CSV tables.

Owns their columns and units. Everything is streamed or counted by SQLite, so that memory stays bounded; databases are
opened read-only and immutable, because a viewer may have left them in WAL mode, and nothing in them is executed.
"""

import csv
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

from stepscope_sidecar.artifacts import InvalidArtifact, database

COMMUNICATION = frozenset({"HCCL", "COMMUNICATION"})
"""The cores that collectives are listed under; their rows are sums over tasks that are listed as well."""

START, DURATION = ("Start Time(us)", "Task Start Time(us)"), ("Duration(us)", "Task Duration(us)")
CORE = ("Accelerator Core", "Task Type")

LAUNCHES = """
    SELECT connectionId IN (SELECT connectionId FROM TASK WHERE connectionId IS NOT NULL) FROM CANN_API
    WHERE type IN (SELECT id FROM ENUM_API_TYPE WHERE name = 'node')
    AND name IN (SELECT id FROM STRING_IDS WHERE value = 'launch') ORDER BY startNs
"""
"""For each launch, in order, whether it has left a task. In the recorded files every one of 573 has."""

SPAN_DIGITS = 16
"""Hexadecimal digits of a span id, at the end of a mark's name."""


@dataclass(kw_only=True, slots=True)
class Tasks:
    """
    Tasks on the device, and the kernels among them; times are unix-epoch ns.
    """

    count: int = 0
    kernels: int = 0
    kernel_ns: int = 0
    first_unix_ns: int = 0
    last_unix_ns: int = 0
    session_unix_ns: tuple[int, int] = (0, 0)
    devices: set[int] = field(default_factory=set)
    launches: bytearray = field(default_factory=bytearray)
    """One byte for each launch on the host, in order: 1 where it has left a task."""
    marks: set[str] = field(default_factory=set)
    """The span ids that were looked for and are there."""

    def extend(self, first: int, last: int) -> None:
        """
        Something ran from ``first`` to ``last``.
        """
        self.first_unix_ns = min(self.first_unix_ns or first, first)
        self.last_unix_ns = max(self.last_unix_ns, last)


def from_database(path: Path, tasks: Tasks, *, wanted: frozenset[str]) -> None:
    """
    Add what the database at ``path`` says, and which of the spans ``wanted`` have a mark.

    Raises:
        InvalidArtifact: it is none, or is cut off.
    """
    with database.opened(path) as connection:
        _database(connection, tasks, wanted)


def from_table(path: Path, tasks: Tasks) -> None:
    """
    Add the rows of ``kernel_details.csv`` or ``op_summary_*.csv``.

    Raises:
        InvalidArtifact: it has no such columns, or a row is cut off.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        try:
            rows = csv.DictReader(file)
            start, duration, core = (_column(rows.fieldnames or (), names) for names in (START, DURATION, CORE))
            if not (start and duration):
                raise InvalidArtifact(f"{path.name} has no columns of times")
            for row in rows:
                if row[start] is None or row[duration] is None:
                    raise InvalidArtifact(f"{path.name} is cut off in row {tasks.count + 1}")
                begin, length = _nanoseconds(row[start]), _nanoseconds(row[duration])
                tasks.count += 1
                tasks.extend(begin, begin + length)
                if row.get(core, "") not in COMMUNICATION:
                    tasks.kernels += 1
                    tasks.kernel_ns += length
        except (csv.Error, InvalidOperation) as error:
            raise InvalidArtifact(f"{path.name}, row {tasks.count + 1}: {error}") from error


def _database(connection: sqlite3.Connection, tasks: Tasks, wanted: frozenset[str]) -> None:
    tables = database.tables(connection).keys()
    if "TASK" in tables:
        [(count, first, last)] = connection.execute("SELECT count(*), min(startNs), max(endNs) FROM TASK")
        tasks.count += count
        if first is not None and last is not None:
            tasks.extend(int(first), int(last))
        tasks.devices |= {int(one) for (one,) in connection.execute("SELECT DISTINCT deviceId FROM TASK")}
    if {"TASK", "COMPUTE_TASK_INFO"} <= tables:
        [(kernels, length)] = connection.execute(
            "SELECT count(*), sum(endNs - startNs) FROM TASK "
            "WHERE globalTaskId IN (SELECT globalTaskId FROM COMPUTE_TASK_INFO)"
        )
        tasks.kernels += kernels
        tasks.kernel_ns += length or 0
    if {"TASK", "CANN_API", "ENUM_API_TYPE", "STRING_IDS"} <= tables:
        tasks.launches.extend(found for (found,) in connection.execute(LAUNCHES))
    if "SESSION_TIME_INFO" in tables:
        for begin, end in connection.execute("SELECT startTimeNs, endTimeNs FROM SESSION_TIME_INFO LIMIT 1"):
            tasks.session_unix_ns = (int(begin), int(end))
    if wanted and "STRING_IDS" in tables:
        pattern = f"% #{'_' * SPAN_DIGITS}"
        names = connection.execute("SELECT value FROM STRING_IDS WHERE value LIKE ?", (pattern,))
        tasks.marks |= wanted & set(_span_ids(name for (name,) in names))


def _span_ids(names: Iterable[str]) -> Iterator[str]:
    return (name[-SPAN_DIGITS:] for name in names)


def _column(names: Iterable[str], wanted: Iterable[str]) -> str:
    known = set(names)
    return next((name for name in wanted if name in known), "")


def _nanoseconds(text: str) -> int:
    """
    From microseconds in text, which a double would not hold; most end in a tab.
    """
    return round(Decimal(text.strip()) * 1000)
