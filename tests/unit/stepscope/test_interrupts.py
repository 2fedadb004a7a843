"""
Signals held back while a profiler starts or stops.
"""

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from stepscope import interrupts


class Told(Exception):  # noqa: N818 - what a handler raises, no error of ours
    """
    What the handler of this test raises.
    """


@pytest.fixture
def ran() -> Iterator[list[int]]:
    """
    The signals whose handlers ran; that of SIGUSR1 raises.
    """
    found: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        found.append(number)
        if number == signal.SIGUSR1:
            raise Told

    before = {number: signal.signal(number, handler) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield found
    for number, former in before.items():
        signal.signal(number, former)


def test_handlers_run_afterwards_in_order_though_one_raises(ran: list[int]) -> None:
    """
    Nothing that came is lost, and what was raised is raised after the block.
    """
    inside: list[int] = [-1]

    def block() -> None:
        with interrupts.held():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)
            inside[:] = ran

    with pytest.raises(Told):
        block()

    assert [] == inside
    assert [signal.SIGUSR1, signal.SIGUSR2] == ran


def test_handlers_are_back_afterwards(ran: list[int]) -> None:
    """
    Also where blocks are nested, and where an error leaves them.
    """
    before = {number: signal.getsignal(number) for number in interrupts.HELD}

    with pytest.raises(ValueError, match="x"), interrupts.held(), interrupts.held():
        raise ValueError("x")

    assert before == {number: signal.getsignal(number) for number in interrupts.HELD}


def test_another_thread_holds_nothing_back(ran: list[int]) -> None:
    """
    Handlers run on the main thread alone, and only that one may exchange them.
    """
    during: list[object] = []

    def work() -> None:
        with interrupts.held():
            during.append(signal.getsignal(signal.SIGUSR2))

    before = signal.getsignal(signal.SIGUSR2)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert [before] == during
