"""
Which windows, and which missing recordings, the next report tells of.

Owns what has not been told yet, and the search for the window that an upstream will not take: a batch that is refused
is told again in halves, down to the one, which alone is given up, with the reason. Sending is ``reporter``'s.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from stepscope.names import State
from stepscope_sidecar.report import MAX_MISSING, MAX_ROWS
from stepscope_sidecar.rows import MissingRow, WindowRow

SHOWN = 3
"""Refused windows that are named; the others are counted, and all are in the log."""


class Batches:
    """
    Windows on their way to one upstream. Use it in the event loop alone.
    """

    def __init__(self) -> None:
        """
        Nothing is to be told.
        """
        self._rows: dict[str, WindowRow] = {}
        self._missing: dict[MissingRow, None] = {}
        self._doubtful: list[list[str]] = []
        self._refused: dict[str, str] = {}

    def __len__(self) -> int:
        """
        Windows that have not been told as they are, and missing recordings that have not been told.
        """
        return len(self._rows) + len(self._missing)

    def add(self, row: WindowRow) -> None:
        """
        ``row`` is new, or another than it was.
        """
        self._rows[row.window] = row

    def lack(self, rows: Iterable[MissingRow]) -> None:
        """
        ``rows`` have been found to be missing, which they stay.
        """
        self._missing.update(dict.fromkeys(rows))

    def found(self, rows: Iterable[WindowRow]) -> None:
        """
        ``rows`` are all that the store has; what was added meanwhile is newer.
        """
        self._rows = {**{row.window: row for row in rows}, **self._rows}

    def forget(self) -> None:
        """
        All will be read from the store again.
        """
        self._rows.clear()
        self._missing.clear()
        self._doubtful.clear()

    def next(self) -> list[WindowRow]:
        """
        What the next report tells.
        """
        while self._doubtful:
            if rows := [self._rows[window] for window in self._doubtful[-1] if window in self._rows]:
                return rows
            self._doubtful.pop()
        # What is still open comes first: it is all that is known should this node vanish.
        waiting = sorted(
            (row for row in self._rows.values() if row.window not in self._refused),
            key=lambda row: State(row.state).final,
        )
        # One that was refused before is tried by itself when it has changed.
        return waiting[:MAX_ROWS] or list(self._rows.values())[:1]

    def lacking(self) -> list[MissingRow]:
        """
        What the next report tells to be missing.
        """
        return list(islice(self._missing, MAX_MISSING))

    @property
    def fits(self) -> bool:
        """
        Whether the next report tells all that is to be told.
        """
        return len(self) == len(self.next()) + len(self.lacking())

    def told(self, rows: Sequence[WindowRow], missing: Iterable[MissingRow] = ()) -> None:
        """
        The upstream has ``rows``, and knows what is ``missing``.
        """
        for absent in missing:
            self._missing.pop(absent, None)
        for row in rows:
            self._refused.pop(row.window, None)
        self._over(rows)

    def halve(self, rows: Sequence[WindowRow]) -> None:
        """
        The upstream does not take ``rows``, which are several: they are told in two halves.
        """
        windows = [row.window for row in rows]
        if self._doubtful:
            self._doubtful.pop()
        middle = len(windows) // 2
        self._doubtful += [windows[middle:], windows[:middle]]

    def refuse(self, row: WindowRow, why: str) -> None:
        """
        The upstream will not take ``row``, as it is.
        """
        self._refused[row.window] = why
        self._over([row])

    @property
    def refused(self) -> str:
        """
        Which windows the upstream does not have, and why; "" where there are none.
        """
        named = [f"window {window}: {why}" for window, why in list(self._refused.items())[:SHOWN]]
        more = len(self._refused) - len(named)
        return "; ".join([*named, *([f"and {more} more"] if more else [])])

    def _over(self, rows: Sequence[WindowRow]) -> None:
        if rows and self._doubtful:
            self._doubtful.pop()
        for row in rows:
            if self._rows.get(row.window) is row:
                del self._rows[row.window]
