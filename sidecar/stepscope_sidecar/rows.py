"""
What the store keeps, one frozen dataclass per table, and how a row becomes columns and comes back.

Field names are column names. Fields that hold a dict or a list are JSON text in the file. Leaves the tables'
definitions to ``schema.py`` and all reading and writing to ``store.py`` and ``reader.py``.
"""

import sqlite3
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import orjson

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]
"""What JSON, and so an attribute, can hold."""

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowRow:
    """
    One window, from being asked for to its final state. ``artifact`` and ``folder`` are relative to STEPSCOPE_DIR.
    """

    window: str
    run: str
    attempt: str
    node: str
    step: int
    param_version: int
    version_at_close: int | None = None
    role: str
    rank: int
    pid: int
    process_start: int = 0
    tool: str
    level: str
    level_fallback: str = ""
    state: str
    reason: str = ""
    detail: str = ""
    complete: bool | None = None
    incomplete_reason: str = ""
    incomplete_share: float | None = None
    artifact: str = ""
    folder: str = ""
    bytes: int = 0
    sha256: str = ""
    trace_id: str = ""
    span_id: str = ""
    asked_unix_ns: int = 0
    opened_unix_ns: int = 0
    closed_unix_ns: int = 0
    stall_seconds: dict[str, float] = field(default_factory=dict)
    other: dict[str, Value] = field(default_factory=dict)
    """Whatever else is worth keeping (caps, finalising CPU, notes); not part of ``stepscope windows --json``."""

    def json(self, *, directory: Path) -> dict[str, Value]:
        """
        The object that ``stepscope windows --json`` and the API print; ``directory`` is STEPSCOPE_DIR.
        """
        data = {key: getattr(self, key) for key in WINDOW_KEYS}
        data["artifact"] = str(directory.absolute() / self.artifact) if self.artifact else ""
        return data


WINDOW_KEYS = (
    *("window", "run", "attempt", "node", "step", "param_version", "version_at_close", "role", "rank", "pid"),
    *("tool", "level", "state", "reason", "complete", "incomplete_reason", "incomplete_share", "artifact"),
    *("bytes", "sha256", "trace_id", "span_id", "opened_unix_ns", "closed_unix_ns", "stall_seconds"),
)
"""Keys of one object of ``stepscope windows --json``, in order; users parse them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessRow:
    """
    One registration of one process in one role. ``ended_unix_ns`` is 0 while it lives.
    """

    pid: int
    process_start: int
    node: str
    role: str
    rank: int
    run: str = ""
    attempt: str = ""
    world_size: int | None = None
    param_version: int = 0
    resumed_from: int | None = None
    total_steps: int | None = None
    entered_step: int = 0
    """The highest step it has entered; 0 before the first."""
    closed_step: int = 0
    """The highest step it has closed."""
    device_ids: list[str] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    registered_unix_ns: int = 0
    ended_unix_ns: int = 0
    end_reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRow:
    """
    One sample consumed by one mini-batch; versions are None where unknown.
    """

    step: int
    mini_batch: int
    param_version: int
    sample_id: str
    oldest_version: int | None = None
    newest_version: int | None = None
    trace_id: str = ""
    span_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionRow:
    """
    One revision of the selection and where it came from: environment, api, or file and the path of the STOP file.
    """

    revision: int
    text: str
    unix_ns: int
    source: str
    stopped: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanRow:
    """
    One span as it was received; ``step``, ``param_version``, ``role`` and ``rank`` are None where nobody knows.
    """

    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: int = 0
    start_unix_ns: int
    end_unix_ns: int
    attributes: dict[str, Value] = field(default_factory=dict)
    links: list[Value] = field(default_factory=list)
    events: list[Value] = field(default_factory=list)
    status: dict[str, Value] = field(default_factory=dict)
    resource: dict[str, Value] = field(default_factory=dict)
    role: str | None = None
    rank: int | None = None
    step: int | None = None
    param_version: int | None = None

    def json(self) -> dict[str, Value]:
        """
        The object that ``stepscope spans --json`` and the API print.
        """
        return {key: getattr(self, key) for key in SPAN_KEYS}


SPAN_KEYS = (
    *("trace_id", "span_id", "parent_span_id", "name", "start_unix_ns", "end_unix_ns"),
    *("attributes", "links", "status", "resource", "events"),
)
"""Keys of one object of ``stepscope spans --json``, in order; users parse them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnSpan:
    """
    A span that the sidecar itself makes; ids are lower-case hex. ``links`` are (trace id, span id) pairs.
    """

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str = ""
    start_unix_ns: int
    end_unix_ns: int
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    links: tuple[tuple[str, str], ...] = ()
    error: str = ""
    """Marks the span as failed, with this message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """
    How a dataclass lies in a table.
    """

    columns: tuple[str, ...]
    encoded: frozenset[str]
    """Columns of JSON text."""
    flags: frozenset[str]
    """Columns of 0, 1 or NULL."""

    @classmethod
    def of(cls, kind: type) -> "Shape":
        """
        Read off the fields of ``kind``.
        """
        hints = typing.get_type_hints(kind)
        return cls(
            columns=tuple(hints),
            encoded=frozenset(name for name, hint in hints.items() if typing.get_origin(hint) in {dict, list}),
            flags=frozenset(name for name, hint in hints.items() if bool in {hint, *typing.get_args(hint)}),
        )


SHAPES: dict[type, Shape] = {kind: Shape.of(kind) for kind in (WindowRow, ProcessRow, SampleRow, SelectionRow, SpanRow)}


def upsert(row: object, table: str) -> str:
    """
    The statement that writes ``row``'s values over an older row of the same key.
    """
    names = SHAPES[type(row)].columns
    listed = ", ".join(f'"{name}"' for name in names)
    return f"INSERT OR REPLACE INTO {table} ({listed}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608 - our own names


def values(row: object) -> list[object]:
    """
    The columns of ``row``, ready for SQLite.
    """
    shape = SHAPES[type(row)]
    return [
        orjson.dumps(getattr(row, name), option=orjson.OPT_NON_STR_KEYS).decode()
        if name in shape.encoded
        else getattr(row, name)
        for name in shape.columns
    ]


def _text(value: object) -> str:
    # Keys may be names.Name, a subclass of str.
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def load(kind: type[R], row: sqlite3.Row) -> R:
    """
    The dataclass in ``row``, whose columns carry the names of its fields.
    """
    shape = SHAPES[kind]
    data: dict[str, object] = {}
    for name in shape.columns:
        value = row[name]
        if name in shape.encoded:
            value = orjson.loads(value)
        elif name in shape.flags and value is not None:
            value = bool(value)
        data[name] = value
    return kind(**data)
