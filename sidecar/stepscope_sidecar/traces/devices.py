"""
What devices did with their time: computed, communicated, moved memory, or nothing, and what of it went on at once.

Pure. Each device's time is split by unions of intervals: work on several streams at the same moment counts once.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from stepscope_sidecar.traces import intervals
from stepscope_sidecar.traces.intervals import Intervals
from stepscope_sidecar.traces.trace import WORK, Kind, Mask, Places, Trace

_COLLECTIVE = re.compile(
    r"nccl|rccl|hccl|msccl|oneccl|\bhcom_|cross_device_reduce|(?:one|two)_shot_all_?reduce|multimem_all_?reduce",
    re.IGNORECASE,
)
"""Kernels of collectives by name: of the libraries, and the all-reduces that vLLM, SGLang and torch bring along."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceTime:
    """
    One device's time, or that of several added up. ``wall_ns`` is ``busy_ns`` and ``idle_ns``; ``busy_ns`` is
    ``compute_ns``, ``communication_exposed_ns`` and ``memory_exposed_ns``.
    """

    wall_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    communication_exposed_ns: int
    """Without computing at the same time."""
    memory_ns: int
    """Copies and fills."""
    memory_exposed_ns: int
    """Without computing or communicating at the same time."""

    def __add__(self, other: "DeviceTime") -> "DeviceTime":
        return DeviceTime(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )

    @property
    def communication_overlapped_ns(self) -> int:
        """
        Communication hidden behind computing.
        """
        return self.communication_ns - self.communication_exposed_ns

    @property
    def memory_overlapped_ns(self) -> int:
        """
        Copies and fills hidden behind computing or communication.
        """
        return self.memory_ns - self.memory_exposed_ns

    def json(self) -> dict[str, int]:
        """
        As ``stepscope show --json`` prints it.
        """
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return found | {
            "communication_overlapped_ns": self.communication_overlapped_ns,
            "memory_overlapped_ns": self.memory_overlapped_ns,
        }


def work(trace: Trace) -> Places:
    """
    The places of all that kept a device busy.
    """
    rows = trace.rows(*WORK)
    return rows[trace.on_device[rows]]


def communicates(trace: Trace) -> Mask:
    """
    Whether each event is a collective on a device.
    """
    found = trace.named(lambda name: _COLLECTIVE.search(name) is not None) & (trace.kind == Kind.KERNEL)
    if trace.collectives:
        told = np.fromiter(trace.collectives, dtype=np.int64)
        found[told] |= trace.kind[told] == Kind.KERNEL
    told_so: Mask = (found | (trace.kind == Kind.COMMUNICATION)) & trace.on_device
    return told_so


def times(trace: Trace, begin: int, end: int) -> Mapping[int, DeviceTime]:
    """
    The time from ``begin`` to ``end`` of each device that did anything in the recording.
    """
    rows = work(trace)
    collective, device = communicates(trace)[rows], trace.device[rows]
    kernel = trace.kind[rows] == Kind.KERNEL
    memory = np.isin(trace.kind[rows], (Kind.MEMCPY, Kind.MEMSET))
    found = {}
    for which in np.unique(device).tolist():
        here = device == which
        parts = [here & kernel & ~collective, here & collective, here & memory]
        found[which] = _time([intervals.of(trace, rows[part]).within(begin, end) for part in parts], end - begin)
    return found


def _time(parts: Sequence[Intervals], wall: int) -> DeviceTime:
    compute, communication, memory = parts
    working = compute | communication
    busy = (working | memory).total
    return DeviceTime(
        wall_ns=wall,
        busy_ns=busy,
        idle_ns=wall - busy,
        compute_ns=compute.total,
        communication_ns=communication.total,
        communication_exposed_ns=(communication - compute).total,
        memory_ns=memory.total,
        memory_exposed_ns=(memory - working).total,
    )
