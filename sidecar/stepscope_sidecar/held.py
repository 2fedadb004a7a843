"""
The windows that are held in memory, found without looking at all of them: a process waits while it is asked for.

Owns the indices alone; what a window is, and how it may change, is ``windows``'s.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope_sidecar.windows import Kin, Window


class Held:
    """
    Windows by id, by what they are of, and those whose profiler may be running. Not thread-safe.
    """

    def __init__(self) -> None:
        """
        Nothing is held.
        """
        self._windows: dict[str, Window] = {}
        # Dictionaries without values: sets that keep their order.
        self._at: dict[Kin, dict[int, dict[str, None]]] = {}
        self._long: dict[Kin, dict[str, None]] = {}
        """Those that cover further steps."""
        self._of_step: dict[int, dict[str, None]] = {}
        self._leased: dict[str, None] = {}
        self._unfinished: dict[str, None] = {}

    def __iter__(self) -> "Iterator[Window]":
        """
        All, as they are now.
        """
        return iter(list(self._windows.values()))

    def __len__(self) -> int:
        """
        How many.
        """
        return len(self._windows)

    def get(self, window: str) -> "Window | None":
        """
        The window of that id.
        """
        return self._windows.get(window)

    def put(self, window: "Window") -> None:
        """
        Hold ``window``, in place of what it was before; its first step, role, rank and tool stay.
        """
        name = window.window
        if name not in self._windows:
            self._at.setdefault(window.kin, {}).setdefault(window.step, {})[name] = None
            self._of_step.setdefault(window.step, {})[name] = None
        self._windows[name] = window
        if window.last_step > window.step:
            self._long.setdefault(window.kin, {})[name] = None
        for names, belongs in ((self._leased, window.leased), (self._unfinished, not window.state.final)):
            if belongs:
                names[name] = None
            else:
                names.pop(name, None)

    def of(self, kin: "Kin", step: int) -> "Iterator[Window]":
        """
        The windows of ``kin`` that cover ``step``, denied ones too; those that begin with it come last.
        """
        yield from self._reaching(step, self._long.get(kin, ()))
        yield from map(self._windows.__getitem__, self._at.get(kin, {}).get(step, ()))

    def of_step(self, step: int) -> "Iterator[Window]":
        """
        All windows that cover ``step``.
        """
        for names in self._long.values():
            yield from self._reaching(step, names)
        yield from map(self._windows.__getitem__, self._of_step.get(step, ()))

    def _reaching(self, step: int, names: Iterable[str]) -> "Iterator[Window]":
        # Those that begin with it are found by their step.
        return (
            self._windows[name] for name in names if self._windows[name].step < step <= self._windows[name].last_step
        )

    def after(self, kin: "Kin", step: int) -> "Iterator[Window]":
        """
        The windows of ``kin`` that begin after ``step``.
        """
        for begins, found in self._at.get(kin, {}).items():
            if begins > step:
                yield from map(self._windows.__getitem__, found)

    def leased(self) -> "list[Window]":
        """
        Those whose profiler may be running.
        """
        return [self._windows[name] for name in self._leased]

    def unfinished(self) -> "list[Window]":
        """
        Those that are not final.
        """
        return [self._windows[name] for name in self._unfinished]

    def forget(self, *, before_step: int) -> None:
        """
        Let go of final windows that cover only steps before ``before_step``.
        """
        for step in [step for step in self._of_step if step < before_step]:
            for name in list(self._of_step[step]):
                window = self._windows[name]
                if window.state.final and max(step, window.last_step) < before_step:
                    self._drop(window)

    def _drop(self, window: "Window") -> None:
        name, step, kin = window.window, window.step, window.kin
        del self._windows[name], self._of_step[step][name], self._at[kin][step][name]
        self._long.get(kin, {}).pop(name, None)
        if not self._of_step[step]:
            del self._of_step[step]
        if not self._at[kin][step]:
            del self._at[kin][step]
