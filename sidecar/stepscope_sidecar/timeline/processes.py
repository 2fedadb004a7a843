"""
Which processes a step has, and which of them a span or a window belongs to.

Pure. A window names its process as the node sees it, a span as the process sees itself, which are different numbers in
a container: the span that opened the window tells that they are one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepscope import names
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar.labels import duration, process_name
from stepscope_sidecar.rows import NodeRow, SpanRow, WindowRow

FIRST = ("trainer", "rollouter")
"""Roles that come first, in this order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """
    One process; of a span without a role, whose service it is. ``pid`` is None where nothing tells.
    """

    role: str
    rank: int | None = None
    node: str = ""
    pid: int | None = None

    @property
    def name(self) -> str:
        """
        What it is called.
        """
        if self.rank is None:
            return f"{self.role} (no role)" + ("" if self.pid is None else f" (pid {self.pid})")
        return process_name(self.role, self.rank, pid=self.pid)

    @property
    def place(self) -> tuple[bool, int, str, int, str, int]:
        """
        Where it comes in a list.
        """
        first = FIRST.index(self.role) if self.role in FIRST else len(FIRST)
        return (self.rank is None, first, self.role, self.rank or 0, self.node, self.pid or 0)


class Processes:
    """
    The processes of a step's windows and spans.
    """

    def __init__(self, windows: Sequence[WindowRow], spans: Iterable[SpanRow]) -> None:
        self._of_window = {row.window: _of_window(row) for row in windows}
        openers = {row.span_id: self._of_window[row.window] for row in windows if row.tool not in LEAVES}
        self._same: dict[Process, Process] = {}
        for span in spans:
            if span.span_id in openers and (seen := _seen(span)) is not None:
                self._same[seen] = openers[span.span_id]

    def of_window(self, row: WindowRow) -> Process:
        """
        The process that is recorded in a window.
        """
        return self._of_window[row.window]

    def of_span(self, span: SpanRow) -> Process:
        """
        The process that a span is of; one that the sidecar made of a window is of the window's.
        """
        window = span.attributes.get(names.WINDOW_ID)
        if isinstance(window, str) and window in self._of_window:
            return self._of_window[window]
        seen = _seen(span)
        if seen is None:
            return Process(role=str(span.resource.get("service.name") or "unknown"), pid=_pid(span))
        if seen in self._same:
            return self._same[seen]
        if seen.pid is None or not seen.node:
            alike = [one for one in self._of_window.values() if _alike(one, seen)]
            return min(alike, key=lambda one: one.place, default=seen)
        return seen


def _of_window(row: WindowRow) -> Process:
    return Process(role=row.role, rank=row.rank, node=row.node, pid=row.pid)


def _seen(span: SpanRow) -> Process | None:
    """
    The process as the span has it.
    """
    if span.role is None or span.rank is None:
        return None
    return Process(role=span.role, rank=span.rank, node=str(span.resource.get("host.name") or ""), pid=_pid(span))


def _pid(span: SpanRow) -> int | None:
    found = span.resource.get("process.pid")
    return found if isinstance(found, int) else None


def _alike(one: Process, other: Process) -> bool:
    same = (one.role, one.rank) == (other.role, other.rank)
    return same and other.pid in {None, one.pid} and other.node in {"", one.node}


class Clocks:
    """
    How far the clocks of other nodes are from this one's, as their reports have measured it.
    """

    def __init__(self, nodes: Iterable[NodeRow]) -> None:
        # Of one that was started again, the last report holds.
        self._nodes = {row.node: row for row in sorted(nodes, key=lambda row: row.heard_unix_ns)}

    def shift_ns(self, process: Process) -> int:
        """
        What is added to the times of a process.
        """
        row = self._nodes.get(process.node)
        return row.offset_ns or 0 if row is not None else 0

    def told(self, process: Process) -> str:
        """
        The node of a process and its clock, where it is another; "" where it is this one.
        """
        row = self._nodes.get(process.node)
        if row is None:
            return ""
        if row.offset_ns is None:
            return f" on {row.node}, whose clock was never compared"
        error = "" if row.error_ns is None else f" ± {duration(row.error_ns)}"
        # What has to be added to its clock is what it is behind; one that is ahead is told with a plus, as on the page.
        sign = "+" if row.offset_ns <= 0 else ""
        return f" on {row.node}, its clock {sign}{duration(-row.offset_ns)}{error}"
