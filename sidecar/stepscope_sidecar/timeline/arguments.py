"""
What Kineto tells of its events beside their names and times, as far as it may leave the recording: shapes and numbers.

Owns which keys those are. Stacks, values of arguments and whatever a program added stay where they are.
"""

from collections.abc import Iterator
from pathlib import Path

import orjson

from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.artifacts.pieces import Pieces, open_raw
from stepscope_sidecar.traces.exact import whole_ns
from stepscope_sidecar.traces.kineto import SESSION
from stepscope_sidecar.traces.trace import Fault, Trace

TOLD = (
    *("External id", "correlation", "device", "stream", "context", "queued", "cbid"),
    *("grid", "block", "registers per thread", "shared memory", "blocks per SM", "warps per SM"),
    *("est. achieved occupancy %", "bytes", "memory bandwidth (GB/s)", "graph id", "graph node id"),
    *("Input Dims", "Input type", "Sequence number", "Fwd thread id", "Record function id"),
    *("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype"),
    *("Process Group Name", "Process Group Description", "Process Group Ranks"),
    *("stepscope.continued", "stepscope.begun_before", "stepscope.ended_after"),
)
"""Keys that are kept. They are the profiler's own, and what they hold says nothing of data, paths or people."""

Told = tuple[str, str]
"""The name of an event, and an object of what is told of it, as JSON; "" for nothing."""

BROKEN = (Fault.TRUNCATED, Fault.INVALID)
"""Of such files only the table of events is known."""


ENOUGH = 1e15
"""Microseconds, some thirty years: what is below needs no closer look."""


def has(trace: Trace) -> bool:
    """
    Whether the file of ``trace`` is one that tells of its events, and sound.
    """
    return trace.header.format == "kineto" and not any(trace.header.has(fault) for fault in BROKEN)


def read(path: Path) -> Iterator[Told]:
    """
    What is told of each event of the file at ``path`` that is in the table of its events, in that order.
    """
    try:
        with open_raw(path) as stream:
            for piece in Pieces(stream):
                for event in piece.events:
                    if isinstance(event, dict) and _timed(event):
                        yield str(event.get("name") or ""), _told(event.get("args"))
    except (InvalidArtifact, OSError):
        # It changed after the table was read, or is gone; who reads on notices that there is no more.
        return


def _timed(event: "dict[str, object]") -> bool:
    """
    Whether an event is in the table: it has a start and a length, and is not about the recording as a whole.
    """
    if event.get("ph") != "X" or event.get("cat") == SESSION:
        return False
    start, length = event.get("ts"), event.get("dur")
    if isinstance(start, float) and isinstance(length, float):
        return 0 <= length < ENOUGH and abs(start) < ENOUGH
    told = whole_ns(length)
    return whole_ns(start) is not None and told is not None and told >= 0


def _told(args: object) -> str:
    if not isinstance(args, dict):
        return ""
    kept = {key: args[key] for key in TOLD if key in args}
    try:
        return orjson.dumps(kept).decode() if kept else ""
    except TypeError:
        # A number of more than 64 bits.
        return orjson.dumps({key: str(value) for key, value in kept.items()}).decode()
