"""
``stepscope merge``: one step's spans and recordings, of all its processes, in one file.

Reads what belongs to the step and has it drawn; what is missing is named, in the file and to who asked. Works on the
store and the files of a run, beside a live one and after it. One recording is in memory at a time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from stepscope import ids
from stepscope_sidecar import nodefolder, orphans, traces
from stepscope_sidecar.errors import MergeError
from stepscope_sidecar.labels import step_name
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.rows import SpanRow
from stepscope_sidecar.timeline import recording, spans
from stepscope_sidecar.timeline.drawing import Drawing
from stepscope_sidecar.timeline.groups import Fetch, Group, first_ns, groups, unasked
from stepscope_sidecar.timeline.placing import within
from stepscope_sidecar.timeline.processes import Clocks, Processes

MISSING, NOTE = "missing", "note"
"""The categories of what stands for something that is not there, and of what is said of something that is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """
    What is not in the file, or (not ``absent``) not as it should be, and why.
    """

    process: str
    why: str
    absent: bool


@dataclass(kw_only=True)
class Merged:
    """
    What has gone into a file.
    """

    path: Path
    step: int
    processes: int = 0
    spans: int = 0
    samples: int = 0
    """Arrows from requests to what trained on their samples."""
    launches: int = 0
    """Arrows from calls to what they started on a device."""
    recordings: list[str] = field(default_factory=list)
    """A line about each."""
    missing: list[Missing] = field(default_factory=list)


def merge(store: Path, step: int, target: Path, *, fetch: Fetch = unasked) -> Merged:
    """
    Write what the run with this ``store`` has of ``step`` to ``target``, compressed if its name ends so.

    Recordings that lie on other nodes are those that ``fetch`` gets.

    Raises:
        MergeError: nothing is known of the step, or the file cannot be written.
        StoreError: there is no store, or it cannot be read.
    """
    with open_reader(store) as reader:
        own = orphans.shown(reader.windows(step=step), attended=orphans.attended(store.parent))
        windows = [*own, *reader.elsewhere(step=step)]
        found = reader.spans(step=step)
        if not found and not windows:
            raise MergeError(_nothing(reader, step))
        sources = spans.consumed(found, reader.samples(step=step))
        found += _requests(reader, step, sources.keys() - {(span.trace_id, span.span_id) for span in found})
        clocks, keys = Clocks(reader.nodes()), _keys(reader, step)
    made = groups(windows, found, Processes(windows, found), clocks)
    starts = {span.span_id: span.start_unix_ns for span in found}
    here = frozenset(row.window for row in own)
    merged = Merged(path=target, step=step, processes=len(made), spans=len(found))
    try:
        for group in made:
            group.find(nodefolder.directory(store.parent), here=here, starts=starts, fetch=fetch)
        _draw(made, clocks, keys, sources, merged)
    except FileNotFoundError as error:
        raise MergeError(f"{error.filename} was removed while it was read; the same call says so in the file") from None
    return merged


def _draw(
    made: Sequence[Group],
    clocks: Clocks,
    keys: Mapping[str, object],
    sources: Mapping[tuple[str, str], Sequence[SpanRow]],
    merged: Merged,
) -> None:
    with Drawing(merged.path, base_ns=first_ns(made), keys=keys) as drawing:
        drawn: dict[tuple[str, str], spans.Drawn] = {}
        for pid, group in enumerate(made, 1):
            drawing.process(pid, f"{group.process.name}{clocks.told(group.process)}")
            drawn |= spans.draw(drawing, pid, group.spans, shift_ns=group.shift_ns)
            _draw_notes(drawing, pid, group, merged)
            _draw_parts(drawing, pid, group, merged)
        merged.samples = spans.connect(drawing, drawn, sources)


def _nothing(reader: Reader, step: int) -> str:
    steps = sorted({*reader.steps(), *(row.step for row in reader.windows())})
    has = f"it has steps {steps[0]} to {steps[-1]}" if steps else "it has none yet"
    return f"no step {step} in this run: {has}; name one with --step, or another run with --run"


def _requests(reader: Reader, step: int, wanted: Collection[tuple[str, str]]) -> Sequence[SpanRow]:
    """
    The spans that are ``wanted`` by trace and span id, of earlier steps: whose they are shows in the trace ids.
    """
    attempt, heads = reader.meta.get("attempt", ""), {trace_id[:16] for trace_id, _ in wanted}
    steps = [one for one in range(1, step) if f"{ids.trace_id(attempt, one):032x}"[:16] in heads]
    return [span for one in steps for span in reader.spans(step=one) if (span.trace_id, span.span_id) in wanted]


def _keys(reader: Reader, step: int) -> Mapping[str, object]:
    """
    What the file says of itself.
    """
    told = {key: reader.meta.get(key, "") for key in ("run", "attempt")}
    told |= {"step": str(step), "param_version": str(step - 1)}
    return {f"stepscope.{key}": value for key, value in told.items()}


def _draw_parts(drawing: Drawing, pid: int, group: Group, merged: Merged) -> None:
    for part in group.parts:
        trace, row = traces.open(part.path), part.row
        rows = within(trace, part.between)
        shift = part.placed.shift_ns + group.shift_ns
        merged.launches += recording.draw(drawing, pid, trace, rows, shift_ns=shift, own_pid=row.pid, title=part.title)
        cut = f", cut from {step_name(row.step, row.last_step)}" if part.between else ""
        told = f"{len(rows)} events, {row.tool} at level {row.level}{cut}"
        merged.recordings.append(f"{group.process.name}: {part.title}{told}")


def _draw_notes(drawing: Drawing, pid: int, group: Group, merged: Merged) -> None:
    """
    A slice for each note, as long as its window or the step; what has no time at all is only told.
    """
    lanes = spans.Rows(drawing, pid, "missing")
    placed = [(group.extent(note.row), note) for note in group.notes]
    for extent, note in sorted(placed, key=lambda pair: (pair[0] or (0, 0))[0]):
        merged.missing.append(Missing(process=group.process.name, why=note.why, absent=note.absent))
        if extent is None:
            continue
        kind = MISSING if note.absent else NOTE
        told = orjson.dumps({"profile.window.id": note.row.window if note.row else "", "reason": note.why}).decode()
        name = orjson.dumps(f"{kind}: {note.why}").decode()
        drawing.slice(lanes.track(*extent), name, *extent, category=kind, told=told)
