"""
Reads the timelines of Ascend's profilers: torch_npu's ``trace_view.json`` and msprof's ``msprof_*.json``.

Owns what their processes, task types and flows mean. Which process an event belongs to is known when the last event is
in: their names may come last. Rows that only sum up others (Overlap Analysis) are left out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stepscope_sidecar.traces import ascend_kinds
from stepscope_sidecar.traces.chrome import Event, number
from stepscope_sidecar.traces.columns import MAX_ID, Columns
from stepscope_sidecar.traces.exact import whole_ns
from stepscope_sidecar.traces.rows import Rows, taken
from stepscope_sidecar.traces.trace import NONE, Fault, Header, Ints, Kind, Points, Trace

HARDWARE = "Ascend Hardware"
COLLECTIVES = frozenset({"HCCL", "Communication"})
DERIVED = frozenset({"Overlap Analysis"})
"""Processes whose rows are made of those of others."""

CANN = "CANN"
PROCESSES = COLLECTIVES | DERIVED | {HARDWARE, CANN}
"""Names of processes that only Ascend's profilers write."""

STEP = "ProfilerStep#"
COLLECTIVE = "hcom"
"""How the names of collectives begin; other rows of their process are their parts."""

TO_DEVICE = "async_npu"
"""Category of the flows from an operator to what runs on the device."""

KINDS = {"cpu_op": Kind.CPU_OP, "python_function": Kind.PYTHON, "user_annotation": Kind.ANNOTATION}
PID_BITS, DEVICE_BITS = 10, 31
"""A process number that CANN makes: the real one above these bits, the device in those below."""


def is_ascend(events: Sequence[object]) -> bool:
    """
    Whether these, of a file that is a bare list, are Ascend's.
    """
    some = [event for event in events if isinstance(event, Event)]
    named = any(one.name == "process_name" and one.args and one.args.name in PROCESSES for one in some)
    return named or any(one.ph == "X" and isinstance(one.ts, str) for one in some)


class AscendView:
    """
    Takes in the events of one file, piece by piece.
    """

    def __init__(self) -> None:
        self.columns = Columns()
        self.exact = False
        """Times are text as they are."""
        self.faults: Counter[Fault] = Counter()
        self.task_types: set[str] = set()
        self.processes: dict[int, str] = {}
        self._flows: dict[int, tuple[int, int]] = {}
        """By the start of what runs on the device: the thread's track, and when it was asked for."""

    def add(self, events: Sequence[object], text: bytes) -> None:
        """
        Take in ``events``; ``text`` is what they were made of, for times that have to be read again.
        """
        self.faults += taken(events, text, columns=self.columns, rows=self._rows).faults

    def trace(self, header: Header) -> Trace:
        """
        The whole: each event with the kind that its process gives it.
        """
        made = self.columns.trace(header)
        names = np.array([self.processes.get(int(pid), "") for pid in made.tracks.pid], dtype=np.str_)
        hardware, cann = names == HARDWARE, names == CANN
        collectives = np.isin(names, list(COLLECTIVES))
        kinds = made.kind.copy()
        on = made.track
        kinds[cann[on] & (kinds != Kind.CPU_OP)] = Kind.RUNTIME
        kinds[hardware[on] & ~np.isin(kinds, (Kind.KERNEL, Kind.MEMCPY, Kind.SYNC))] = Kind.OTHER
        kinds[hardware[on] & (made.kind == Kind.CPU_OP)] = Kind.KERNEL
        whole = made.named(lambda name: name.startswith(COLLECTIVE))
        kinds[collectives[on]] = np.where(whole, Kind.COMMUNICATION, Kind.OTHER)[collectives[on]]
        kinds[ascend_kinds.parts(kinds, made.correlation, hardware[on])] = Kind.OTHER
        device = self._devices(made.tracks.pid, hardware | collectives)
        tracks = replace(
            made.tracks,
            pid=np.where(device != NONE, made.tracks.pid >> PID_BITS, made.tracks.pid),
            tid=np.where(hardware, NONE, made.tracks.tid),
            device=np.where(hardware | collectives, device, NONE),
            stream=np.where(hardware, made.tracks.tid, NONE),
            on_device=hardware | collectives,
        )
        kept = np.flatnonzero(~np.isin(names, list(DERIVED))[on])
        return replace(
            made,
            tracks=tracks,
            points=self._points(made, tracks.on_device[on]),
            kind=kinds[kept],
            **{
                column: getattr(made, column)[kept]
                for column in ("start_ns", "duration_ns", "name", "track", "correlation", "external_id")
            },
        )

    def told_devices(self) -> bool:
        """
        Whether the file says on which device things ran: in the process numbers of recent releases.
        """
        pids = np.array([pid for pid, name in self.processes.items() if name == HARDWARE], dtype=np.int64)
        return bool(len(pids)) and bool(np.all(self._devices(pids, np.ones(len(pids), dtype=np.bool_)) != NONE))

    def _devices(self, pids: Ints, some: "np.typing.NDArray[np.bool_]") -> Ints:
        """
        The device of each process number that is ``some`` device's, where the number is made as recent releases do.
        """
        real = {pid for pid, name in self.processes.items() if name not in PROCESSES}
        real |= {pid >> PID_BITS for pid, name in self.processes.items() if name == CANN}
        known = some & np.isin(pids >> PID_BITS, list(real))
        return np.where(known, pids & DEVICE_BITS, NONE).astype(np.int64)

    def _points(self, made: Trace, on_device: "np.typing.NDArray[np.bool_]") -> Points:
        """
        Where each operator asked for what: a flow names only the start of that, which has a correlation.
        """
        rows = np.flatnonzero(on_device & (made.correlation != NONE))
        found = [
            (int(made.correlation[row]), *self._flows[start])
            for row, start in zip(rows.tolist(), made.start_ns[rows].tolist(), strict=True)
            if start in self._flows
        ]
        told = np.array(sorted(set(found)), dtype=np.int64).reshape(-1, 3)
        return Points(correlation=told[:, 0], track=told[:, 1].astype(np.int32), at_ns=told[:, 2])

    def _rows(self, events: Sequence[object]) -> Rows:
        rows = Rows()
        for event in events:
            if not isinstance(event, Event) or event.ph is None:
                rows.faults[Fault.NOT_EVENTS] += 1
            elif event.ph == "X":
                self._row(event, rows)
            elif event.ph == "M" and event.name == "process_name" and event.args is not None:
                if (pid := number(event.pid)) is not None:
                    self.processes[pid] = str(event.args.name)
            elif event.ph == "s" and event.cat == TO_DEVICE:
                start, at = number(event.id), whole_ns(event.ts)
                if start is not None and at is not None:
                    self._flows[start] = (self._track(event), at)
        return rows

    def _row(self, event: Event, rows: Rows) -> None:
        told, name = event.args, event.name or ""
        kind, correlation = KINDS.get(event.cat or "", Kind.OTHER), NONE
        if kind is Kind.CPU_OP and name.startswith(STEP):
            kind = Kind.ANNOTATION
        if told is not None:
            if told.task_type is not None:
                kind = ascend_kinds.kind(str(told.task_type))
                self.task_types.add(str(told.task_type))
            found = number(told.connection)
            correlation = found if found is not None and 0 <= found <= MAX_ID else NONE
        rows.start.append(event.ts)
        rows.length.append(event.dur)
        rows.name.append(self.columns.name(name))
        rows.kind.append(kind)
        rows.track.append(self._track(event))
        rows.correlation.append(correlation)
        rows.external_id.append(NONE)

    def _track(self, event: Event) -> int:
        pid, tid = number(event.pid), number(event.tid)
        return self.columns.host(_bounded(pid), _bounded(tid))


def _bounded(value: int | None) -> int:
    return value if value is not None and 0 <= value <= MAX_ID else NONE
