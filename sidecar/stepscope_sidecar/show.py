"""
A window and what its recording holds: in numbers, and against the recording before it.

Finds the files and has them read; what the numbers mean is left to ``traces``, how they look to ``sheet``. Works on the
store and the files of a run, beside a live one and after it.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepscope import wire
from stepscope.errors import WireError
from stepscope.names import State
from stepscope_sidecar import lookup, nodefolder, orphans, places, traces, worked
from stepscope_sidecar.artifacts import InvalidArtifact, tree
from stepscope_sidecar.labels import step_name
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.rows import SpanRow, WindowRow
from stepscope_sidecar.traces import Trace
from stepscope_sidecar.traces.difference import Difference, difference
from stepscope_sidecar.traces.marks import marks
from stepscope_sidecar.traces.summary import Summary, summarise


@dataclass(frozen=True, kw_only=True)
class Against:
    """
    The recording before: what differs from it, or why that cannot be said.
    """

    window: WindowRow | None = None
    differences: Sequence[Difference] = ()
    """By recording, in the order of the window's; an engine's workers have one each."""
    why: str = ""

    def json(self) -> dict[str, object]:
        """
        As ``stepscope show --json`` prints it.
        """
        return {
            "window": self.window.window if self.window else "",
            "step": self.window.step if self.window else None,
            "reason": self.why,
            "recordings": [one.json() for one in self.differences],
        }


@dataclass(frozen=True, kw_only=True)
class Shown:
    """
    All that is known of a window.
    """

    row: WindowRow
    directory: Path | None
    """STEPSCOPE_DIR, or None where the recording lies on another node."""
    summaries: Sequence[Summary]
    why: str
    """Why there is no recording, or why it is not the window's final one."""
    against: Against

    def json(self) -> dict[str, object]:
        """
        What ``stepscope show --json`` prints.
        """
        return {
            "window": self.row.json(directory=self.directory),
            "reason": self.why,
            "recordings": [summary.json() for summary in self.summaries],
            "difference": self.against.json(),
        }


def shown(store: Path, wanted: str = "") -> Shown:
    """
    The window ``wanted`` of the run whose store is ``store``: see ``lookup.chosen``.

    Raises:
        LookupFailedError: there is no such window, or there are several.
        StoreError: there is no store, or it cannot be read.
    """
    directory = nodefolder.directory(store.parent)
    with open_reader(store) as reader:
        own = orphans.shown(reader.windows(), attended=orphans.attended(store.parent))
        elsewhere = reader.elsewhere()
        row = lookup.chosen([*own, *elsewhere], wanted)
        spans = worked.spans_of(reader, row)
        here = any(row is one for one in own) or places.enclosed(directory, row.artifact) is not None
        path, why = located(row, directory if here else None)
        found = traces.open_all(path) if path else []
        summaries = [_summary(one, row, spans) for one in found]
        before = lookup.before([*own, *elsewhere], row)
        return Shown(
            row=row,
            directory=directory if here else None,
            summaries=summaries,
            why=why,
            against=_against(reader, row, found, before, directory) if found else Against(why="nothing to compare"),
        )


def located(row: WindowRow, directory: Path | None) -> tuple[Path | None, str]:
    """
    Where the recording of ``row`` lies, or what there is of one; and why it is not there, or not what it should be.
    """
    state = State(row.state)
    if row.artifact and directory is None:
        return None, f"the recording lies on node {row.node}; run `stepscope show {row.window}` there{_copy(row)}"
    if row.artifact and directory is not None:
        path = directory / row.artifact
        if found := places.enclosed(directory, row.artifact):
            return found, ""
        if os.path.lexists(path):
            return None, f"the recording is not read: {path} is a link, or lies behind one{_copy(row)}"
        return None, f"the recording is not at {path}, where it was put: it was moved or removed{_copy(row)}"
    if not state.final:
        return None, f"the window is {state}; its recording can be shown once it is ready"
    why = f"the window is {state}: {row.reason}" + (f" ({row.detail})" if row.detail else "")
    left = _left(directory, row.folder) if directory is not None and row.folder else None
    return left, f"{why}; shown is what was left of it" if left else why


def _copy(row: WindowRow) -> str:
    return f"; a copy is at {row.stored_url}" if row.stored_url else ""


def _left(directory: Path, folder: str) -> Path | None:
    """
    What the process left in the window's folder, by its close record.
    """
    with suppress(OSError, WireError, InvalidArtifact):
        record = places.enclosed(directory, f"{folder}/{wire.RECORD}")
        closed = wire.decode(record.read_bytes()) if record else None
        if isinstance(closed, wire.Closed) and closed.artifact:
            return places.enclosed(directory, f"{folder}/{tree.raw(directory / folder, closed.artifact).name}")
    return None


def _summary(trace: Trace, row: WindowRow, spans: Sequence[SpanRow]) -> Summary:
    window = (row.opened_unix_ns, row.closed_unix_ns) if row.opened_unix_ns and row.closed_unix_ns else None
    return summarise(trace, window=window, parents=parents(trace, row, spans))


def parents(trace: Trace, row: WindowRow, spans: Sequence[SpanRow]) -> Mapping[str, str]:
    """
    The parent of each span on the timeline; what is of an earlier step, or a trace of its own as requests are, lies
    below the process.
    """
    known = {span.span_id: span.parent_span_id for span in spans}
    found = {mark.span_id: row.span_id for mark in marks(trace)}
    found |= {span_id: parent for span_id, parent in known.items() if parent in known}
    found.pop(row.span_id, None)
    return found


def _against(
    reader: Reader, row: WindowRow, after: Sequence[Trace], earlier: WindowRow | None, directory: Path
) -> Against:
    if earlier is None:
        return Against(why="there is no earlier recording of this process with this tool and level")
    path, why = located(earlier, directory)
    if path is None:
        return Against(window=earlier, why=why)
    before = traces.open_all(path)
    if len(before) != len(after):
        why = f"{step_name(earlier.step)} has {len(before)} recordings, this one {len(after)}"
        return Against(window=earlier, why=why)
    works = [worked.work(reader, one, worked.spans_of(reader, one)) for one in (earlier, row)]
    found = [
        difference(old, new, work_before=works[0], work_after=works[1]) for old, new in zip(before, after, strict=True)
    ]
    if not any(any(one.compared.values()) for one in found):
        why = f"neither recording holds kernels or operators: level {row.level} of {row.tool} has none here"
        return Against(window=earlier, why=why)
    return Against(window=earlier, differences=found)
