"""
What the next window may write: what is left on the disk, less what others were granted and may still write.

Pure. Owns the sums; who looks at the disk, and how long ago, is ``surroundings``'s.
"""

from collections.abc import Callable, Iterable

from stepscope_sidecar.windows import Window


class Room:
    """
    The bytes that windows were granted. Not thread-safe.
    """

    def __init__(self, *, left: Callable[[], int], written: Callable[[Window], int], cap: int) -> None:
        """
        ``left`` says what may still be kept, ``written`` what a window that has closed left behind; ``cap``: most bytes
        of one window, 0 for no bound.
        """
        self._left, self._written, self._cap = left, written, cap
        self._granted: dict[str, int] = {}
        self._finalising: dict[str, int] = {}

    def left(self, leased: Iterable[Window]) -> int:
        """
        Bytes for one more window, while the ``leased`` ones may still write all that they were granted.
        """
        left = self._left()
        # Of one that a former sidecar granted, the grant is unknown; one that goes along with another was granted none.
        taken = sum(
            self._granted.get(window.window, self._cap or (0 if window.beside else max(0, left))) for window in leased
        )
        return left - taken - sum(self._finalising.values())

    def grant(self, window: Window, *, left: int) -> int:
        """
        Give ``window`` what it may write of what is ``left``: half of it at most, so that something is left for others,
        though a recording is mostly far smaller than what it may be.
        """
        half = max(1, left // 2)
        self._granted[window.window] = min(self._cap or half, half)
        return self._granted[window.window]

    def closed(self, window: Window) -> None:
        """
        All of ``window`` is written, though the disk may not have been looked at since.
        """
        self._granted.pop(window.window, None)
        self._finalising[window.window] = self._written(window)

    def over(self, window: Window) -> None:
        """
        ``window`` is final.
        """
        self._granted.pop(window.window, None)
        self._finalising.pop(window.window, None)
