"""
What a step has of each of its processes: spans, windows, their recordings, and what is to be said of them.

Owns which recordings are looked at, where they lie in time, and why there is none.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepscope import names
from stepscope_sidecar import places, traces
from stepscope_sidecar.rows import SpanRow, WindowRow
from stepscope_sidecar.show import located
from stepscope_sidecar.timeline.placing import Placed, place, within
from stepscope_sidecar.timeline.processes import Clocks, Process, Processes
from stepscope_sidecar.traces import folders

UNASKED = "no window was asked for"
ELSEWHERE = (
    "the recording lies on node {node}, and could not be fetched: {why}; merge there, or copy it to {artifact} where"
    " the runs of this node lie"
)
Fetch = Callable[[WindowRow], Path | str]
"""A copy of a recording of another node, or why there is none."""


def unasked(row: WindowRow) -> str:
    """
    Fetches nothing.
    """
    return f"node {row.node} was not asked"


Extent = tuple[int, int]
"""From when to when."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """
    One recording of one window.
    """

    row: WindowRow
    path: Path
    title: str
    """How its tracks begin, where the window has several."""
    placed: Placed
    between: Extent | None
    """What of it is drawn, by its own clock; None for all."""
    first_ns: int | None
    """Its earliest event on this node's clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """
    What is not there, or not as it should be, and why.
    """

    row: WindowRow | None
    why: str
    absent: bool = True


@dataclass(kw_only=True)
class Group:
    """
    One process of the step.
    """

    process: Process
    shift_ns: int
    """What makes its times those of this node's clock."""
    spans: list[SpanRow] = field(default_factory=list)
    windows: list[WindowRow] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def between(self) -> Extent | None:
        """
        From when to when the process was in the step, by its own clock.
        """
        own = [span for span in self.spans if span.name == names.RL_STEP_PROCESS]
        return (min(one.start_unix_ns for one in own), max(one.end_unix_ns for one in own)) if own else None

    @property
    def first_ns(self) -> int | None:
        """
        The earliest that is drawn of it, on this node's clock.
        """
        moments = [span.start_unix_ns + self.shift_ns for span in self.spans]
        moments += [part.first_ns for part in self.parts if part.first_ns is not None]
        moments += [extent[0] for note in self.notes if (extent := self.extent(note.row))]
        return min(moments, default=None)

    def extent(self, row: WindowRow | None) -> Extent | None:
        """
        Where what is to be said of a window is put, on this node's clock; None where nothing here has a time.
        """
        found = self.between
        if row is not None and row.opened_unix_ns:
            found = (row.opened_unix_ns, max(row.opened_unix_ns, row.closed_unix_ns))
        elif found is None and self.spans:
            ends = [max(span.start_unix_ns, span.end_unix_ns) for span in self.spans]
            found = (min(span.start_unix_ns for span in self.spans), max(ends))
        elif found is None and row is not None and row.asked_unix_ns:
            found = (row.asked_unix_ns, row.asked_unix_ns)
        return None if found is None else (found[0] + self.shift_ns, found[1] + self.shift_ns)

    def find(self, directory: Path, *, here: frozenset[str], starts: Mapping[str, int], fetch: Fetch) -> None:
        """
        Look for the recordings.

        Args:
            directory: STEPSCOPE_DIR.
            here: the windows that are this node's own.
            starts: of spans, by id.
            fetch: for those of others.
        """
        for row in self.windows:
            for path, title in self._paths(row, directory, here, fetch):
                self._take(row, path, title, starts)
            if row.complete is False:
                told = f" ({row.detail})" if row.detail else ""
                self.notes.append(Note(row=row, why=f"incomplete: {row.incomplete_reason}{told}", absent=False))
        if not self.windows and self.process.rank is not None:
            self.notes.append(Note(row=None, why=UNASKED))
        # The file goes to others, and where the runs lie on this machine does not.
        self.notes = [
            Note(row=note.row, why=note.why.replace(f"{directory}/", ""), absent=note.absent) for note in self.notes
        ]

    def _paths(self, row: WindowRow, directory: Path, here: frozenset[str], fetch: Fetch) -> Iterator[tuple[Path, str]]:
        if row.artifact and row.window not in here and places.enclosed(directory, row.artifact) is None:
            copy = fetch(row)
            if isinstance(copy, Path):
                yield copy, ""
            else:
                told = ELSEWHERE.format(node=row.node, artifact=row.artifact, why=copy)
                self.notes.append(Note(row=row, why=told))
            return
        path, why = located(row, directory)
        if why:
            self.notes.append(Note(row=row, why=why, absent=path is None))
        if path is not None:
            found = (folders.recordings(path) if path.is_dir() else []) or [path]
            for number, each in enumerate(found, 1):
                yield each, f"recording {number}: " if len(found) > 1 else ""

    def _take(self, row: WindowRow, path: Path, title: str, starts: Mapping[str, int]) -> None:
        trace = traces.open(path)
        for flag in trace.header.flags:
            why = f"{title}{flag.fault}: {flag.reason}"
            self.notes.append(Note(row=row, why=why, absent=not len(trace)))
        placed = place(trace, row, starts)
        if placed.why:
            self.notes.append(Note(row=row, why=f"{title}{placed.why}", absent=False))
        between = self.between if row.last_step > row.step else None
        if between is not None:
            between = (between[0] - placed.shift_ns, between[1] - placed.shift_ns)
        rows = within(trace, between)
        first = int(trace.start_ns[rows].min()) + placed.shift_ns + self.shift_ns if len(rows) else None
        self.parts.append(Part(row=row, path=path, title=title, placed=placed, between=between, first_ns=first))


def groups(
    windows: Sequence[WindowRow], spans: Sequence[SpanRow], processes: Processes, clocks: Clocks
) -> Sequence[Group]:
    """
    The processes of a step, with their windows and spans, in the order in which they are shown.
    """
    found: dict[Process, Group] = {}
    for row in windows:
        _group(found, processes.of_window(row), clocks).windows.append(row)
    for span in spans:
        _group(found, processes.of_span(span), clocks).spans.append(span)
    return sorted(found.values(), key=lambda one: one.process.place)


def first_ns(found: Iterable[Group]) -> int:
    """
    The earliest moment of all.
    """
    return min((first for group in found if (first := group.first_ns) is not None), default=0)


def _group(found: dict[Process, Group], process: Process, clocks: Clocks) -> Group:
    if process not in found:
        found[process] = Group(process=process, shift_ns=clocks.shift_ns(process))
    return found[process]
