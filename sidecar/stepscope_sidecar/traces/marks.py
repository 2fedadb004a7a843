"""
The spans that are mirrored on a profiler's timeline: which events they are, and of which spans.

Pure. Their names end with the span's id, as ``stepscope.bridge`` and ``artifacts.continued`` write them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope_sidecar.traces.trace import Mask, Trace

_MARK = re.compile(r"(.*) #([0-9a-f]{16})", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """
    A span's part on the timeline; ``row`` is its event.
    """

    row: int
    name: str
    span_id: str
    start_ns: int
    end_ns: int


def is_mark(name: str) -> bool:
    """
    Whether an event of this ``name`` is a mirrored span.
    """
    return _MARK.fullmatch(name) is not None


def marked(trace: Trace) -> Mask:
    """
    Whether each event is a mirrored span. What a device shows of one, from its first to its last kernel, is none.
    """
    return trace.named(is_mark) & ~trace.on_device


def marks(trace: Trace) -> Sequence[Mark]:
    """
    The mirrored spans of ``trace``, by start; an outer one comes before one that it holds.
    """
    rows = np.flatnonzero(marked(trace))
    order = np.lexsort((rows, -trace.duration_ns[rows], trace.start_ns[rows]))
    found = []
    for row in rows[order].tolist():
        told = _MARK.fullmatch(trace.name_of(row))
        assert told is not None
        start = int(trace.start_ns[row])
        end = start + int(trace.duration_ns[row])
        found.append(Mark(row=row, name=told[1], span_id=told[2], start_ns=start, end_ns=end))
    return found
