"""
The columns of the tables, and how a row of the store becomes one of them.

Pure. Types are fixed, so that tables of several runs can be put together, and an empty one has its columns. Attributes,
events and resources are JSON text; what is asked for most has a column of its own beside. Paths are relative to
STEPSCOPE_DIR.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from stepscope import ids, names
from stepscope_sidecar.capture import STALL
from stepscope_sidecar.jaeger import shape
from stepscope_sidecar.rows import SampleRow, SpanRow, Value, WindowRow
from stepscope_sidecar.spans import to_text

TEXT, WHOLE, SMALL, REAL, FLAG = pa.string(), pa.int64(), pa.int32(), pa.float64(), pa.bool_()

LINK = pa.struct([("trace_id", TEXT), ("span_id", TEXT)])

PROMOTED: Mapping[str, tuple[names.Name, pa.DataType]] = {
    "bucket": (names.BUCKET, TEXT),
    "wait_for": (names.WAIT_FOR, TEXT),
    "param_version_end": (names.PARAM_VERSION_END, WHOLE),
    "mini_batch": (names.MINI_BATCH, WHOLE),
    "samples": (names.SAMPLES, WHOLE),
    "tokens": (names.TOKENS, WHOLE),
    "work": (names.WORK, REAL),
    "reward": (names.REWARD, REAL),
    "window": (names.WINDOW_ID, TEXT),
}
"""Columns of spans that are attributes: null where a span has none, or one of another type."""

SPANS = pa.schema(
    [
        *(("run", TEXT), ("attempt", TEXT), ("trace_id", TEXT), ("span_id", TEXT), ("parent_span_id", TEXT)),
        *(("name", TEXT), ("kind", TEXT), ("service", TEXT), ("role", TEXT), ("rank", SMALL), ("step", WHOLE)),
        *(("param_version", WHOLE), ("start_unix_ns", WHOLE), ("end_unix_ns", WHOLE), ("duration_ns", WHOLE)),
        *(("status", TEXT), ("status_message", TEXT)),
        *((column, kind) for column, (_, kind) in PROMOTED.items()),
        *(("attributes", TEXT), ("links", pa.list_(LINK)), ("events", TEXT), ("resource", TEXT)),
    ]
)

WINDOWS = pa.schema(
    [
        *(("run", TEXT), ("attempt", TEXT), ("node", TEXT), ("window", TEXT), ("step", WHOLE), ("last_step", WHOLE)),
        *(("param_version", WHOLE), ("version_at_close", WHOLE), ("role", TEXT), ("rank", SMALL), ("pid", WHOLE)),
        *(("tool", TEXT), ("level", TEXT), ("state", TEXT), ("reason", TEXT), ("detail", TEXT), ("complete", FLAG)),
        *(("incomplete_reason", TEXT), ("incomplete_share", REAL), ("artifact", TEXT), ("bytes", WHOLE)),
        *(("sha256", TEXT), ("trace_id", TEXT), ("span_id", TEXT), ("opened_unix_ns", WHOLE)),
        *(("closed_unix_ns", WHOLE), ("stored_url", TEXT)),
        *((f"stall_{phase}", REAL) for phase in STALL),
    ]
)

SAMPLES = pa.schema(
    [
        *(("run", TEXT), ("attempt", TEXT), ("step", WHOLE), ("mini_batch", WHOLE), ("param_version", WHOLE)),
        *(("sample_id", TEXT), ("oldest_version", WHOLE), ("newest_version", WHOLE), ("staleness", WHOLE)),
        *(("trace_id", TEXT), ("span_id", TEXT), ("trained_trace_id", TEXT)),
    ]
)

Cells = dict[str, object]
"""One row of a table."""


def batch(cells: Iterable[Cells], schema: pa.Schema) -> pa.RecordBatch:
    """
    Rows as a piece of a table.
    """
    return pa.RecordBatch.from_pylist(list(cells), schema=schema)


def span_cells(row: SpanRow, run: Cells) -> Cells:
    """
    A row of ``spans``.
    """
    promoted = {column: _fitting(row.attributes.get(name), kind) for column, (name, kind) in PROMOTED.items()}
    return {
        **run,
        **promoted,
        "trace_id": row.trace_id,
        "span_id": row.span_id,
        "parent_span_id": row.parent_span_id or None,
        "name": row.name,
        "kind": shape.kind(row.kind) or None,
        "service": shape.service(row.resource),
        "role": row.role,
        "rank": _small(row.rank),
        "step": row.step,
        "param_version": row.param_version,
        "start_unix_ns": row.start_unix_ns,
        "end_unix_ns": row.end_unix_ns,
        "duration_ns": max(0, row.end_unix_ns - row.start_unix_ns),
        "status": row.status.get("code"),
        "status_message": row.status.get("message") or None,
        "attributes": to_text(row.attributes),
        "links": row.links,
        "events": to_text(row.events),
        "resource": to_text(row.resource),
    }


def window_cells(row: WindowRow) -> Cells:
    """
    A row of ``windows``; what does not hold, or is not known, is null.
    """
    found: Cells = {column: getattr(row, column, None) for column in WINDOWS.names}
    for column in ("reason", "detail", "incomplete_reason", "artifact", "sha256", "trace_id", "span_id", "stored_url"):
        found[column] = found[column] or None
    for column in ("bytes", "opened_unix_ns", "closed_unix_ns"):
        found[column] = found[column] or None
    found["rank"] = _small(row.rank)
    return {**found, **{f"stall_{phase}": row.stall_seconds.get(phase) for phase in STALL}}


def sample_cells(row: SampleRow, run: Cells) -> Cells:
    """
    A row of ``samples``: ``trace_id`` and ``span_id`` are of its generation, ``trained_trace_id`` of the step it fed.
    """
    return {
        **run,
        **{column: getattr(row, column) for column in ("step", "mini_batch", "param_version", "sample_id")},
        "oldest_version": row.oldest_version,
        "newest_version": row.newest_version,
        "staleness": None if row.oldest_version is None else row.param_version - row.oldest_version,
        "trace_id": row.trace_id or None,
        "span_id": row.span_id or None,
        "trained_trace_id": f"{ids.trace_id(str(run['attempt']), row.step):032x}",
    }


def _fitting(value: Value, kind: pa.DataType) -> Value:
    if kind == TEXT:
        return value if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind == REAL:
        return float(value)
    return value if isinstance(value, int) else None


def _small(value: int | None) -> int | None:
    return value if value is not None and abs(value) < 2**31 else None
