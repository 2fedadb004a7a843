"""
Which recordings of the steps so far are missing: expected steps that are not decided yet, and those that are.

Asks ``expected`` as soon as a step can be decided, and remembers the answers.
"""

from collections.abc import Iterable, Iterator

from stepscope.names import State
from stepscope.selection import Ranks
from stepscope_sidecar.expected import Missing, missing
from stepscope_sidecar.processes import Processes
from stepscope_sidecar.windows import Window, Windows

KEPT = 100
"""Decided steps whose missing recordings are remembered."""


class Census:
    """
    Missing recordings by step. Not thread-safe: the control loop owns it.
    """

    def __init__(self) -> None:
        """
        Begin with nothing expected.
        """
        self._open: set[int] = set()
        self._last = 0
        self.missing: dict[int, list[Missing]] = {}
        """What decided steps lack; an empty list where nothing is missing."""
        self.by_role: dict[str, int] = {}
        """How many are missing in the last decided step."""

    def expect(self, step: int) -> None:
        """
        Somebody has entered ``step`` and is expected to record it.
        """
        if step not in self.missing:
            self._open.add(step)

    def count(
        self, processes: Processes, windows: Windows, ranks: Ranks, *, alone: bool = True
    ) -> Iterator[tuple[int, str, int, str]]:
        """
        Decide what can be decided now; yields step, role, rank and reason of each recording that is missing.

        Only where this node is ``alone`` in the run has a rank that is not registered here never registered.
        """
        for step in sorted(self._open):
            found = missing(
                [process.member(step) for process in processes],
                windows=_outcomes(windows.of_step(step)),
                world=processes.world() if alone else {},
                ranks=ranks,
            )
            if found is None:
                continue
            self._open.discard(step)
            self.missing[step] = found
            if len(self.missing) > KEPT:
                del self.missing[min(self.missing)]
            if step >= self._last:
                self._last = step
                self.by_role = dict.fromkeys(processes.counts(), 0)
                for item in found:
                    self.by_role[item.role] = self.by_role.get(item.role, 0) + 1
            for item in found:
                yield step, item.role, item.rank, item.reason


def _outcomes(windows: Iterable[Window]) -> dict[tuple[str, int], tuple[State, str]]:
    found: dict[tuple[str, int], tuple[State, str]] = {}
    for window in windows:
        key = (window.role, window.rank)
        # A denial of a window that another process, or a second try, then got says nothing; nor does what was recorded
        # of a process beside it.
        if not window.beside and (key not in found or window.state is not State.DENIED):
            found[key] = (window.state, window.reason)
    return found
