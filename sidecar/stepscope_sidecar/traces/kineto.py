"""
Reads Kineto's Chrome traces, of torch from 2020 on: CUDA, ROCm, MTIA and none.

Owns what Kineto's events mean and where its clock begins. What lies around the events is ``kineto_header``'s, text that
is no sound JSON ``salvage``'s.
"""

import re
from collections import Counter
from collections.abc import Sequence

from stepscope_sidecar.traces.chrome import Arguments, Event, number
from stepscope_sidecar.traces.columns import MAX_ID, Columns
from stepscope_sidecar.traces.exact import whole_ns
from stepscope_sidecar.traces.rows import Rows, taken
from stepscope_sidecar.traces.trace import NONE, Collective, Fault, Kind

KINDS = {
    "kernel": (Kind.KERNEL, True),
    "gpu_memcpy": (Kind.MEMCPY, True),
    "gpu_memset": (Kind.MEMSET, True),
    "gpu_user_annotation": (Kind.DEVICE_ANNOTATION, True),
    "cuda_sync": (Kind.SYNC, True),
    "cuda_profiler_range": (Kind.OTHER, True),
    "mtia_ccp_events": (Kind.OTHER, True),
    "cpu_op": (Kind.CPU_OP, False),
    "user_annotation": (Kind.ANNOTATION, False),
    "python_function": (Kind.PYTHON, False),
    "overhead": (Kind.OVERHEAD, False),
    "cuda_runtime": (Kind.RUNTIME, False),
    "cuda_driver": (Kind.DRIVER, False),
    "xpu_runtime": (Kind.RUNTIME, False),
    "xpu_driver": (Kind.DRIVER, False),
    "mtia_runtime": (Kind.RUNTIME, False),
    "privateuse1_runtime": (Kind.RUNTIME, False),
    "privateuse1_driver": (Kind.DRIVER, False),
    "Kernel": (Kind.KERNEL, True),
    "Memcpy": (Kind.MEMCPY, True),
    "Memset": (Kind.MEMSET, True),
    "Runtime": (Kind.RUNTIME, False),
    "Operator": (Kind.CPU_OP, False),
}
"""Category, and what such events are and whether they are on a device; capitals are of before 2022-05."""

UNKNOWN = (Kind.OTHER, False)

SESSION = "Trace"
"""Category of what spans the profiler's session, not anything that ran."""

SESSION_END = "Record Window End"

STEP = "ProfilerStep#"
"""How the names of a schedule's steps begin; in 2021 they were operators."""

LOST = "unknown"
"""What torch calls everything with a name that is not plain ASCII."""

SYNC_ROWS = 1_000_000
"""What Kineto of 2026 adds to the stream for its rows of waiting."""

_STREAM = re.compile(r"(?:stream )?(\d+)")


class Kineto:
    """
    Takes in the events of one file, piece by piece; all else is known when the last one is in.
    """

    def __init__(self) -> None:
        self.columns = Columns()
        self.exact = False
        """Whether the text of times is needed, because doubles do not hold them; then it may as well be parsed so."""
        self.faults: Counter[Fault] = Counter()
        self.categories: set[str | None] = set()
        """Some that were there: all that are not known, and that of the first event of each track."""
        self.session_ns: list[int] = []
        """Of the profiler's own session: starts and ends, on the file's clock."""
        self._tracks: dict[tuple[bool, int | str | None, int | str | None], int] = {}

    def add(self, events: Sequence[object], text: bytes) -> None:
        """
        Take in ``events``; ``text`` is what they were made of, for times that have to be read again.
        """
        rows = taken(events, text, columns=self.columns, rows=self._rows)
        self.exact = self.exact or rows.beyond()
        self.faults += rows.faults
        for start, length in rows.session:
            begin, duration = whole_ns(start), whole_ns(length) or 0
            if begin is not None:
                self.session_ns += [begin, begin + duration]

    def _rows(self, events: Sequence[object]) -> Rows:
        rows = Rows()
        tracks, known, intern, places = self._tracks, KINDS, self.columns.name, self.columns.names
        add_start, add_length, add_name = rows.start.append, rows.length.append, rows.name.append
        add_kind, add_track = rows.kind.append, rows.track.append
        add_correlation, add_external = rows.correlation.append, rows.external_id.append
        for event in events:
            if not isinstance(event, Event):
                rows.faults[Fault.NOT_EVENTS] += 1
                continue
            category = event.cat
            if event.ph != "X":
                if event.ph is None:
                    rows.faults[Fault.NOT_EVENTS] += 1
                elif event.name == SESSION_END:
                    rows.session.append((event.ts, 0))
                continue
            if category == SESSION:
                rows.session.append((event.ts, event.dur))
                continue
            kind, on_device = known.get(category, UNKNOWN)  # type: ignore[arg-type]  # no category is none of them
            if kind is Kind.OTHER:
                self.categories.add(category)
            name, told = event.name or "", event.args
            if category == "Operator" and name.startswith(STEP):
                kind = Kind.ANNOTATION
            elif name == LOST and not on_device:
                rows.faults[Fault.LOST_NAMES] += 1
            track = tracks.get((on_device, event.pid, event.tid))
            if track is None:
                track = self._track(event, on_device=on_device)
            correlation = external = NONE
            if told is not None:
                found = told.correlation
                if found is not None:
                    correlation = found if found.__class__ is int and 0 < found <= MAX_ID else self._id(found, rows)
                found = told.external if told.external is not None else told.external_old
                if found is not None:
                    external = found if found.__class__ is int and 0 < found <= MAX_ID else self._id(found, rows)
                if told.collective is not None:
                    rows.collectives[len(rows.start)] = collective(told)
            add_start(event.ts)
            add_length(event.dur)
            place = places.get(name)
            add_name(intern(name) if place is None else place)
            add_kind(kind)
            add_track(track)
            add_correlation(correlation)
            add_external(external)
        return rows

    def _id(self, value: object, rows: Rows) -> int:
        found = number(value)
        if found is None:
            return NONE
        # 0 stands for none, in releases that do not leave it out.
        if not 0 < found <= MAX_ID:
            rows.faults[Fault.LARGE_NUMBERS] += found > MAX_ID
            return NONE
        return found

    def _track(self, event: Event, *, on_device: bool) -> int:
        """
        The place of the thread or the stream that ``event`` is drawn on.
        """
        row = _place(event.tid)
        if on_device:
            told = event.args or Arguments()
            device, stream = _place(event.pid), _stream(row)
            place = self.columns.device(device if device != NONE else _place(told.device), stream)
        else:
            place = self.columns.host(_place(event.pid), row)
        self._tracks[on_device, event.pid, event.tid] = place
        self.categories.add(event.cat)
        return place


def collective(told: Arguments) -> Collective:
    """
    What an event says about a collective.
    """
    return Collective(
        name=str(told.collective),
        elements_in=number(told.elements_in),
        elements_out=number(told.elements_out),
        group_size=number(told.group_size),
        group="" if told.group is None else str(told.group),
        dtype="" if told.dtype is None else str(told.dtype),
    )


def _place(value: object) -> int:
    if isinstance(value, str):
        found = _STREAM.fullmatch(value.strip())
        return int(found[1]) if found else NONE
    told = number(value)
    return told if told is not None and abs(told) <= MAX_ID else NONE


def _stream(row: int) -> int:
    return row - SYNC_ROWS if row >= SYNC_ROWS else row
