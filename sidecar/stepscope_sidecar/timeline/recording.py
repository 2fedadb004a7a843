"""
Draws a recording: every event of its table on the track of its thread or stream, with arrows from calls to kernels.

Owns what of a recording is shown, and where it lies. Which recordings there are is ``merge``'s.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from pathlib import PurePosixPath

import numpy as np
import orjson

from stepscope_sidecar.timeline import arguments
from stepscope_sidecar.timeline.drawing import Drawing, Track, micro
from stepscope_sidecar.timeline.lanes import of_events
from stepscope_sidecar.traces.ties import find
from stepscope_sidecar.traces.trace import NONE, WORK, Ints, Kind, Places, Trace

CATEGORIES: Mapping[int, str] = {
    Kind.OTHER: "other",
    Kind.KERNEL: "kernel",
    Kind.MEMCPY: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
    Kind.RUNTIME: "cuda_runtime",
    Kind.DRIVER: "cuda_driver",
    Kind.CPU_OP: "cpu_op",
    Kind.ANNOTATION: "user_annotation",
    Kind.DEVICE_ANNOTATION: "gpu_user_annotation",
    Kind.PYTHON: "python_function",
    Kind.COMMUNICATION: "communication",
    Kind.SYNC: "cuda_sync",
    Kind.OVERHEAD: "overhead",
}
"""What kinds are called in the file: as Kineto does, which viewers know."""

PIECE = 20_000
"""Events that are made text at once, about 10 MB."""

LAUNCH = "launch"
"""What the arrows are called from a call to what it started on a device."""

_HOME = re.compile(r"(?:/home|/Users)/[^/\s]+|/root(?=/)")
_FUNCTION = re.compile(r"(\S*/\S+)(?=\(\d+\): )")


def draw(
    drawing: Drawing, pid: int, trace: Trace, rows: Places, *, shift_ns: int, own_pid: int, title: str = ""
) -> int:
    """
    Draw the events at ``rows`` in the process ``pid`` of the drawing: how many arrows there are from calls to work.

    Args:
        drawing: takes them.
        pid: the process there.
        trace: the recording.
        rows: places of events, in the file's order.
        shift_ns: is added to their times.
        own_pid: the process that the recording is of; other ones are named.
        title: what to call the recording where the process has several.
    """
    tracks, places = _tracks(drawing, pid, trace, rows, own_pid=own_pid, title=title)
    for text in _texts(drawing, trace, rows, tracks, places, shift_ns):
        drawing.event(text)
    return _launches(drawing, trace, rows, tracks, places, shift_ns)


def plain(name: str) -> str:
    """
    The name of an event without folders of people: a Python function's file is named alone, a home is ``~``.
    """
    if "/" not in name:
        return name
    return _HOME.sub("~", _FUNCTION.sub(lambda found: PurePosixPath(found[1]).name, name))


def _tracks(
    drawing: Drawing, pid: int, trace: Trace, rows: Places, *, own_pid: int, title: str
) -> tuple[Sequence[Track], Places]:
    """
    A track for each lane of each thread and stream that is used, threads first; and the place of each event's.
    """
    lanes, made = of_events(trace, rows).astype(np.int64), trace.tracks
    order = np.lexsort((made.stream, made.device, made.tid, made.pid, made.on_device))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    height = int(lanes.max()) + 1 if len(lanes) else 1
    used, places = np.unique(rank[trace.track[rows]] * height + lanes, return_inverse=True)
    tracks = []
    for rung in used.tolist():
        name = _named(trace, int(order[rung // height]), own_pid)
        more = f" ({rung % height + 1})" if rung % height else ""
        tracks.append(drawing.track(pid, f"{title}{name}{more}"))
    return tracks, places.astype(np.int32)


def _named(trace: Trace, track: int, own_pid: int) -> str:
    made = trace.tracks
    pid, tid = int(made.pid[track]), int(made.tid[track])
    device, stream = int(made.device[track]), int(made.stream[track])
    if not made.on_device[track]:
        thread = "host" if tid == NONE else f"thread {tid}"
        return thread if pid in {NONE, own_pid} else f"{thread} of pid {pid}"
    told = "device" if device == NONE else f"device {device}"
    return told + ("" if stream == NONE else f" stream {stream}") + ("" if tid == NONE else f" row {tid}")


def _texts(
    drawing: Drawing, trace: Trace, rows: Places, tracks: Sequence[Track], places: Places, shift_ns: int
) -> Iterator[str]:
    names = [orjson.dumps(plain(name)).decode() for name in trace.names]
    told = _told(trace, rows)
    for first in range(0, len(rows), PIECE):
        some = rows[first : first + PIECE]
        columns = (trace.name[some], trace.kind[some], trace.start_ns[some] + shift_ns, trace.duration_ns[some])
        for name, kind, start, length, place in zip(
            *(column.tolist() for column in columns), places[first : first + PIECE].tolist(), strict=True
        ):
            pid, tid = tracks[place]
            yield (
                f'{{"ph":"X","cat":"{CATEGORIES[kind]}","name":{names[name]},"pid":{pid},"tid":{tid},'
                f'"ts":{drawing.micro(start)},"dur":{micro(length)},"args":{next(told)}}}'
            )


def _told(trace: Trace, rows: Places) -> Iterator[str]:
    """
    What is told of each event: by the file itself while it agrees with the table, else by the table.
    """
    nothing: Iterator[arguments.Told | None] = repeat(None)
    told = chain(arguments.read(trace.header.path), nothing) if arguments.has(trace) else nothing
    place = -1
    for row, correlation in zip(rows.data, trace.correlation[rows].data, strict=True):
        found = None
        while place < row:
            found, place = next(told), place + 1
        if found is not None and found[0] != trace.name_of(row):
            found, told = None, nothing
        if found is not None and found[1]:
            yield found[1]
        else:
            yield f'{{"correlation":{correlation}}}' if correlation != NONE else "{}"


def _launches(
    drawing: Drawing, trace: Trace, rows: Places, tracks: Sequence[Track], places: Places, shift_ns: int
) -> int:
    """
    Arrows from the calls to the work that they started, where both are among ``rows``.
    """
    kinds, correlation = trace.kind[rows], trace.correlation[rows]
    calls = np.flatnonzero(np.isin(kinds, (Kind.RUNTIME, Kind.DRIVER)) & (correlation != NONE))
    work = np.flatnonzero(np.isin(kinds, WORK) & trace.on_device[rows])
    found = find(correlation[work], correlation[calls], trace.start_ns[rows[calls]])
    known = found != NONE
    inside = _inside(trace, rows) + shift_ns
    for call, done in zip(calls[found[known]].tolist(), work[known].tolist(), strict=True):
        drawing.flow(LAUNCH, tracks[places[call]], int(inside[call]), tracks[places[done]], int(inside[done]))
    return int(known.sum())


def _inside(trace: Trace, rows: Places) -> Ints:
    """
    A moment inside of each event: its beginning may be another's end.
    """
    return trace.start_ns[rows] + np.minimum(trace.duration_ns[rows], 1)
