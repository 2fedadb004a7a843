"""
Collectives: how many of each, over which group, how much they moved and how long they took.

Pure. What a device ran counts; where no device did, what the host says of them.
"""

from dataclasses import dataclass

import numpy as np

from stepscope_sidecar.traces.devices import communicates
from stepscope_sidecar.traces.families import family, group
from stepscope_sidecar.traces.trace import Collective, Kind, Places, Trace

HOST = ("gloo:", "nccl:", "mpi:", "ucc:", "xccl:", "hccl:")
"""How torch's annotations of collectives begin: with the backend."""

PARAMETERS = "record_param_comms"
"""The operator in which torch notes a collective's parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """
    The collectives that are alike.
    """

    name: str
    on_device: bool
    count: int
    total_ns: int
    group: str = ""
    group_size: int | None = None
    dtype: str = ""
    elements: int | None = None
    """Put in by this rank, added up; None where the profiler does not say."""

    def json(self) -> dict[str, str | int | bool | None]:
        """
        As ``stepscope show --json`` prints it.
        """
        return {
            "name": self.name,
            "on_device": self.on_device,
            "count": self.count,
            "total_ns": self.total_ns,
            "group": self.group,
            "group_size": self.group_size,
            "dtype": self.dtype,
            "elements": self.elements,
        }


def collectives(trace: Trace) -> tuple[Exchange, ...]:
    """
    The collectives of ``trace``, most time first.
    """
    rows, on_device = np.flatnonzero(communicates(trace)).astype(np.int32), True
    if not len(rows):
        rows, on_device = _on_host(trace), False
    found: dict[tuple[object, ...], list[int]] = {}
    for row in rows.tolist():
        told = trace.collectives.get(row)
        if told is None:
            name = trace.name_of(row)
            told = Collective(name=family(name), group=group(name))
        key = (told.name, told.group, told.group_size, told.dtype)
        found.setdefault(key, []).append(row)
    exchanges = [_exchange(trace, alike, on_device=on_device) for alike in found.values()]
    return tuple(sorted(exchanges, key=lambda one: (-one.total_ns, one.name, one.group)))


def _on_host(trace: Trace) -> Places:
    annotated = trace.named(lambda name: name.startswith(HOST)) & (trace.kind == Kind.ANNOTATION)
    noted = trace.named(lambda name: name == PARAMETERS) & (trace.kind == Kind.CPU_OP)
    # Torch may write both of one collective; the note says more.
    return np.flatnonzero((noted if noted.any() else annotated) & ~trace.on_device).astype(np.int32)


def _exchange(trace: Trace, rows: list[int], *, on_device: bool) -> Exchange:
    told = [trace.collectives.get(row) for row in rows]
    name = trace.name_of(rows[0])
    first = told[0] or Collective(name=family(name), group=group(name))
    known = [one.elements_in for one in told if one is not None and one.elements_in is not None]
    return Exchange(
        name=first.name,
        on_device=on_device,
        count=len(rows),
        total_ns=int(trace.duration_ns[rows].sum()),
        group=first.group,
        group_size=first.group_size,
        dtype=first.dtype,
        elements=sum(known) if len(known) == len(rows) else None,
    )
