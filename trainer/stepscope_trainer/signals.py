"""
SIGINT and SIGTERM as one exception in the main thread, so that a job is closed in order.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):  # noqa: N818 - it is no error, as KeyboardInterrupt is none
    """
    The job was told to stop by ``signal``.
    """

    def __init__(self, number: int) -> None:
        """
        By signal ``number``.
        """
        super().__init__(number)
        self.signal = number


@contextmanager
def raised() -> Iterator[None]:
    """
    Within the block the first signal raises ``Interrupted``; those that follow are ignored, as closing takes seconds.

    A second Ctrl-C is not lost on somebody in a hurry: SIGQUIT and SIGKILL still end the program at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {each: signal.signal(each, handle) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
