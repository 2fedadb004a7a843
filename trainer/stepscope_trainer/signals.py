"""
SIGINT and SIGTERM as something to look at, so that a job is closed in order.

A handler that raised would do so wherever the main thread is, inside Ray's calls too, which do not survive it.
"""

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """
    The job was told to stop by ``signal``.
    """

    def __init__(self, number: int) -> None:
        """
        By signal ``number``.
        """
        super().__init__(number)
        self.signal = number


class Signals:
    """
    Remembers the first signal, until ``restore``. In another thread than the main one it hears none.

    Closing takes seconds, so that further ones change nothing; SIGQUIT and SIGKILL still end the program at once.
    """

    def __init__(self) -> None:
        """
        Listen from now on.
        """
        self._heard = 0
        self._before: dict[signal.Signals, Any] = {}
        self.install()

    def install(self) -> None:
        """
        Listen again, after somebody else has put a handler in our place.
        """
        if threading.current_thread() is threading.main_thread():
            for each in SIGNALS:
                before = signal.signal(each, self._hear)
                self._before.setdefault(each, before)

    def check(self) -> None:
        """
        Raises ``Interrupted`` once a signal has come.
        """
        if self._heard:
            raise Interrupted(self._heard)

    def restore(self) -> None:
        """
        Give the signals back to whoever had them.
        """
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._heard = self._heard or number
