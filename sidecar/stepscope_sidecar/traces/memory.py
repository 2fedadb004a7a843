"""
Reads memory snapshots of torch and torch_npu. They hold no events with a length, and so are no ``Trace``.

Owns their layout. A pickle may name anything to be called; here everything that it names is refused.
"""

import pickle
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from stepscope_sidecar.artifacts import InvalidArtifact

MAX_BYTES = 256 << 20
"""Bytes that are unpickled, several times those as objects; snapshots of a hundred thousand entries take a tenth."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """
    What a snapshot says of the memory that was held, in bytes, and of how it came to be.
    """

    segments: int
    reserved: int
    allocated: int
    active: int
    blocks: Mapping[str, int]
    """How many there are in each state."""
    actions: Mapping[str, int]
    """How often each was traced."""
    entries: tuple[int, ...]
    """Traced actions of each device."""
    timed: bool
    """Whether actions say when they were: those of torch_npu 2.6 do not."""


def read(path: Path) -> Snapshot:
    """
    The snapshot at ``path``.

    Raises:
        InvalidArtifact: it is none, or names something to be called.
    """
    if path.stat().st_size > MAX_BYTES:
        raise InvalidArtifact(f"{path.name} has more than {MAX_BYTES} bytes")
    try:
        with path.open("rb") as file:
            told = _Plain(file).load()
        segments, traces = told["segments"], told["device_traces"]
        entries = [entry for trace in traces for entry in trace]
        return Snapshot(
            segments=len(segments),
            reserved=sum(int(one["total_size"]) for one in segments),
            allocated=sum(int(one["allocated_size"]) for one in segments),
            active=sum(int(one["active_size"]) for one in segments),
            blocks=Counter(str(block["state"]) for one in segments for block in one["blocks"]),
            actions=Counter(str(entry["action"]) for entry in entries),
            entries=tuple(len(trace) for trace in traces),
            timed=any("time_us" in entry for entry in entries),
        )
    except Exception as error:
        raise InvalidArtifact(f"{path.name} is no memory snapshot: {type(error).__name__}: {error}") from error


class _Plain(pickle.Unpickler):
    """
    Makes containers, numbers and text, and nothing else.
    """

    def find_class(self, module: str, name: str) -> Never:
        raise pickle.UnpicklingError(f"{module}.{name} is refused")
