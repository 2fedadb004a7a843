"""
What the store keeps, one frozen dataclass per table, and how a row becomes columns and comes back.

Field names are column names. Fields that hold a dict or a list are JSON text in the file. Leaves the tables'
definitions to ``schema.py`` and all reading and writing to ``store.py`` and ``reader.py``.
"""

import re
import sqlite3
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import orjson

from stepscope.names import State

Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]
"""What JSON, and so an attribute, can hold."""

R = TypeVar("R")

ROLE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
"""A role is part of a folder's name, and a label of metrics."""


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
    """Whatever else a restarted sidecar needs of it (devices, further steps); not in ``stepscope windows --json``."""

    @property
    def last_step(self) -> int:
        """
        The last step that it covers: ``step``, but for a window that consecutive steps share.
        """
        last = self.other.get("last_step")
        return max(self.step, last) if isinstance(last, int) else self.step

    def covers(self, step: int) -> bool:
        """
        Whether ``step`` is recorded in it, or was to be.
        """
        return self.step <= step <= self.last_step

    @property
    def removed(self) -> bool:
        """
        Whether there was a recording that retention has removed.
        """
        return self.state == State.READY and not self.artifact and bool(self.sha256)

    @property
    def stored(self) -> str:
        """
        How its artifact stands in the object store: "" where there is none, ``waiting``, ``stored`` or ``failing``.
        """
        return str(self.other.get("stored") or "")

    @property
    def stored_url(self) -> str:
        """
        Where in the object store it lies.
        """
        return str(self.other.get("stored_url") or "")

    @property
    def stored_reason(self) -> str:
        """
        Why its copy is ``failing``.
        """
        return str(self.other.get("stored_reason") or "")

    def json(self, *, directory: Path | None) -> dict[str, Value]:
        """
        The object that ``stepscope windows --json`` and the API print; ``directory`` is STEPSCOPE_DIR, or None where
        the artifact lies on another node.
        """
        data = {key: getattr(self, key) for key in WINDOW_KEYS}
        if self.artifact:
            here = (
                f"stepscope://{self.node}/{self.artifact}"
                if directory is None
                else directory.absolute() / self.artifact
            )
            data["artifact"] = str(here)
        return data


WINDOW_KEYS = (
    *(
        "window",
        "run",
        "attempt",
        "node",
        "step",
        "last_step",
        "param_version",
        "version_at_close",
        "role",
        "rank",
        "pid",
    ),
    *("tool", "level", "state", "reason", "detail", "complete", "incomplete_reason", "incomplete_share", "artifact"),
    *("bytes", "sha256", "trace_id", "span_id", "opened_unix_ns", "closed_unix_ns", "stall_seconds"),
    *("stored", "stored_url", "stored_reason"),
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
    One revision of the selection and where it came from: environment, api, or a file and its name.
    """

    revision: int
    text: str
    unix_ns: int
    source: str
    stopped: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingRow:
    """
    A recording that was expected of a step and was not made.
    """

    step: int
    role: str
    rank: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingElsewhere(MissingRow):
    """
    One that another node has found to be missing.
    """

    node: str
    run: str
    attempt: str


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


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRow:
    """
    Another node whose sidecar reports to this one. ``vanished_unix_ns`` is 0 while it is heard of.
    """

    node: str
    run: str
    attempt: str
    http: str = ""
    """Where its sidecar can be asked from here; "" where it cannot."""
    heard_unix_ns: int = 0
    offset_ns: int | None = None
    """What has to be added to its clock to have ours."""
    error_ns: int | None = None
    vanished_unix_ns: int = 0
    ended_unix_ns: int = 0
    """When its sidecar ended in order; 0 while it runs."""


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


SHAPES: dict[type, Shape] = {
    kind: Shape.of(kind)
    for kind in (WindowRow, ProcessRow, SampleRow, SelectionRow, MissingRow, MissingElsewhere, SpanRow, NodeRow)
}


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
    return [_text(getattr(row, name)) if name in shape.encoded else getattr(row, name) for name in shape.columns]


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
