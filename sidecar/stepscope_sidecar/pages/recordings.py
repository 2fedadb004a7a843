"""
Where a link in a trace view leads: the page of one window, and that of the recordings of a trace.

Pure.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from stepscope.names import Reason
from stepscope_sidecar.labels import process_name, seconds, size, step_name, step_numbers
from stepscope_sidecar.pages.cells import complete, process, recording, state, worded
from stepscope_sidecar.pages.figures import recordings
from stepscope_sidecar.pages.html import (
    Content,
    Live,
    Markup,
    document,
    escaped,
    facts,
    joined,
    link,
    part,
    table,
    tag,
    ways,
)
from stepscope_sidecar.reasons import INCOMPLETE, REASONS, meaning
from stepscope_sidecar.rows import WindowRow

TOP = "../"
"""From one of these pages to the first; relative, so that it holds behind a proxy too."""

COLUMNS = ("step", "process", "tool", "level", "state", "complete", "size", "recording", "window")


def window_page(
    row: WindowRow,
    *,
    here: bool,
    digest: Mapping[str, Any] | None = None,
    live: Live | None = None,
    trace_view: str = "",
    viewer: str = "",
) -> str:
    """
    The page of a window; ``here``: it is of this node. ``digest`` is what its recording holds, None while that is being
    read; ``trace_view`` and ``viewer`` are where its trace and its recording are shown elsewhere, "" for nowhere.
    """
    name = f"{step_name(row.step, row.last_step)}: {process_name(row.role, row.rank)}"
    level = joined([row.level, f"(not {row.level_fallback})" if row.level_fallback else None])
    lines: list[tuple[str, Content]] = [
        ("recording", joined([recording(row, here=here, top=TOP) or "none", _viewer(row, here=here, viewer=viewer)])),
        ("state", state(row)),
        ("reason", worded(meaning(row.reason, REASONS)) if row.reason != Reason.BOUNDARY else None),
        ("complete", complete(row)),
        ("incomplete", worded(meaning(row.incomplete_reason, INCOMPLETE))),
        ("tool", joined([row.tool, level])),
        ("size", size(row.bytes) if row.bytes else None),
        ("SHA-256", tag("code", row.sha256) if row.sha256 else None),
        ("copy", _copy(row)),
        ("opened", _moment(row.opened_unix_ns)),
        ("closed", _moment(row.closed_unix_ns)),
        ("recorded for", _length(row)),
        *((f"stall, {phase}", seconds(value)) for phase, value in row.stall_seconds.items()),
        ("process", process_name(row.role, row.rank, pid=row.pid)),
        ("node", row.node),
        ("run", f"{row.run} {row.attempt}"),
        ("window", tag("code", row.window)),
        ("trace", _trace(row, trace_view)),
        ("span", tag("code", row.span_id) if row.span_id else None),
    ]
    return document(
        f"{row.window} - stepscope",
        [
            ways((TOP, "the run"), (f"{TOP}steps/{row.step}", f"step {row.step}")),
            tag("h1", name),
            part("facts", [facts((key, value) for key, value in lines if value is not None)]),
            tag("h2", "What it holds"),
            part("holds", recordings(digest) if row.artifact else [_nothing(row)]),
        ],
        top=TOP,
        live=live,
        script="viewer.js" if viewer else "",
    )


def trace_page(trace_id: str, windows: Sequence[tuple[WindowRow, bool]]) -> str:
    """
    The recordings of a trace: windows, each with whether it is of this node.
    """
    step = next((row.step for row, _ in windows), 0)
    found = table(COLUMNS, _rows(windows), numbers=frozenset({"size"})) if windows else None
    return document(
        f"recordings of {trace_id[:8]} - stepscope",
        [
            ways((TOP, "the run"), *([(f"{TOP}steps/{step}", f"step {step}")] if step else [])),
            tag("h1", f"Recordings of {step_name(step)}" if step else "No recording of this trace"),
            facts([("trace", tag("code", trace_id)), ("spans", link(f"{TOP}api/traces/{trace_id}", "as JSON"))]),
            found or tag("p", "Its step was not selected, or belongs to another run.", kind="dim"),
        ],
        top=TOP,
    )


def _rows(windows: Iterable[tuple[WindowRow, bool]]) -> Iterable[tuple[Content, ...]]:
    for row, here in windows:
        yield (
            step_numbers(row.step, row.last_step),
            process(row),
            row.tool,
            row.level,
            state(row),
            complete(row),
            size(row.bytes) if row.bytes else None,
            recording(row, here=here, top=TOP),
            link(f"{TOP}windows/{row.window}", row.window),
        )


def _viewer(row: WindowRow, *, here: bool, viewer: str) -> Content:
    """
    A button that hands the recording to a viewer in another window of the browser; the script does it.
    """
    if not (viewer and row.artifact and here and row.artifact.endswith((".json", ".json.gz"))):
        return None
    path = f"{TOP}artifacts/{quote(row.artifact)}"
    name = f"step {row.step}, {process_name(row.role, row.rank)}"
    attributes = {"viewer": viewer, "recording": path, "name": name}
    told = "".join(f' data-{key}="{escaped(value)}"' for key, value in attributes.items())
    return Markup(f'<button type="button"{told}>open in {escaped(urlsplit(viewer).netloc)}</button>')


def _nothing(row: WindowRow) -> Markup:
    """
    What is said where a recording would be.
    """
    return tag("p", "Its recording was removed." if row.removed else "There is no recording.", kind="dim")


def _trace(row: WindowRow, view: str) -> Content:
    if not row.trace_id:
        return None
    found = link(f"{TOP}traces/{row.trace_id}", tag("code", row.trace_id))
    return joined([found, link(view, "in the trace view") if view else None])


def _moment(unix_ns: int) -> Content:
    if not unix_ns:
        return None
    second, rest = divmod(unix_ns, 10**9)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second)) + f".{rest // 10**6:03d} UTC"


def _copy(row: WindowRow) -> Content:
    if not row.stored:
        return None
    return joined([row.stored_url or row.stored, tag("span", row.stored_reason, kind="dim")])


def _length(row: WindowRow) -> Content:
    if not row.opened_unix_ns or row.closed_unix_ns < row.opened_unix_ns:
        return None
    return seconds((row.closed_unix_ns - row.opened_unix_ns) / 1e9)
