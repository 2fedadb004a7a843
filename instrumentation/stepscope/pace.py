"""
How fast the recordings of this process grow, so that a bound on their bytes can act while one is being made.

A profiler does not say how much it holds, and counting operators from outside would cost more than recording them. But
steps are alike: the last recording of the same tool and level tells the pace of the next. Of the first it is unknown.
"""

from stepscope.names import Level
from stepscope.wire import Closed

LEVELS = frozenset({Level.OPS, Level.FULL})
"""Levels with operators. At the others a recording consists of the spans, which are counted."""

SHORTEST_NS = 50_000_000
"""A shorter recording is mostly what every recording has, and tells of no pace."""


class Paces:
    """
    Bytes in a second of each tool's last recording. Written and read at boundaries, one at a time.
    """

    def __init__(self) -> None:
        self._paces: dict[tuple[str, str], float] = {}

    def note(self, tool: str, closed: Closed, size: int, *, marks: bool = True) -> None:
        """
        A recording of ``size`` bytes was made with ``tool``. Without ``marks`` there are no spans in it to be counted.
        """
        took = closed.closed_unix_ns - closed.opened_unix_ns
        if size and (closed.level in LEVELS or not marks) and took >= SHORTEST_NS:
            self._paces[tool, closed.level] = size / (took / 1e9)

    def of(self, tool: str, level: str) -> float:
        """
        Bytes in a second that are to be expected; 0 if that is unknown.
        """
        return self._paces.get((tool, level), 0.0)
