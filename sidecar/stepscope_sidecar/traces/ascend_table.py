"""
Reads tables of what ran on an Ascend device: torch_npu's ``kernel_details.csv`` and msprof's ``op_summary_*.csv``.

Owns their columns. There is nothing of the host in them, so that nothing can be tied to a span.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.artifacts.ascend_tasks import COMMUNICATION, CORE, DURATION, START
from stepscope_sidecar.traces import ascend_kinds
from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.rows import Rows
from stepscope_sidecar.traces.trace import NONE, Fault, Flag, Header, Kind, Trace

NAME = ("Name", "Op Name")
STREAM, DEVICE = ("Stream ID",), ("Device_id", "Device ID")

HEAD = 1 << 16
"""Bytes of a line of names; the longest known has 900."""

BATCH = 20_000
"""Rows that are Python objects at one time."""


def is_table(fields: Sequence[str]) -> bool:
    """
    Whether these are the columns of such a table.
    """
    return all(_column(fields, names) for names in (START, DURATION, NAME))


def is_one(path: Path) -> bool:
    """
    Whether the file at ``path`` is such a table.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return is_table(next(csv.reader([file.readline(HEAD)]), []))


def read(path: Path, header: Header) -> Trace:
    """
    The rows of the table at ``path``; one that is cut off is flagged.

    Raises:
        InvalidArtifact: it has no such columns.
    """
    columns, task_types, flags, rows = Columns(), set[str](), list(header.flags), Rows()
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.DictReader(file)
        fields = reader.fieldnames or ()
        if not is_table(fields):
            raise InvalidArtifact(f"{path.name} has no columns of names and times")
        try:
            for row in reader:
                if row[_column(fields, DURATION)] is None:
                    raise csv.Error("it ends within a row")
                _add(row, fields, columns, rows, task_types)
                if len(rows.start) >= BATCH:
                    rows.put_each(columns)
                    rows = Rows()
        except csv.Error as error:
            flags.append(Flag(fault=Fault.TRUNCATED, reason=f"row {reader.line_num}: {error}"))
    rows.put_each(columns)
    return columns.trace(
        replace(
            header,
            era=header.era or "torch_npu or msprof, table of kernels",
            flags=tuple(flags),
            guesses=(*header.guesses, *ascend_kinds.guesses(task_types - COMMUNICATION)),
            unplaced=columns.lacking(),
        )
    )


def _add(row: Mapping[str, str], fields: Sequence[str], columns: Columns, rows: Rows, task_types: set[str]) -> None:
    core = row.get(_column(fields, CORE), "")
    task_types.add(core)
    device, stream = (row.get(_column(fields, names), "") for names in (DEVICE, STREAM))
    rows.start.append(row[_column(fields, START)])
    rows.length.append(row[_column(fields, DURATION)])
    rows.name.append(columns.name(row[_column(fields, NAME)]))
    rows.kind.append(Kind.COMMUNICATION if core in COMMUNICATION else ascend_kinds.kind(core))
    rows.track.append(columns.device(_number(device), _number(stream)))
    rows.correlation.append(NONE)
    rows.external_id.append(NONE)


def _number(text: str | None) -> int:
    told = (text or "").strip()
    return int(told) if told.isdecimal() and len(told) < 10 else NONE


def _column(fields: Sequence[str], wanted: Sequence[str]) -> str:
    return next((name for name in wanted if name in fields), "")
