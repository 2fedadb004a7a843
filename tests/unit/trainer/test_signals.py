"""
Signals that are looked at.
"""

import os
import signal
import threading

import pytest

from stepscope_trainer.signals import Interrupted, Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_kept_until_it_is_looked_at(number: signal.Signals) -> None:
    """
    The first counts; it raises nowhere but in ``check``; whoever had it before gets it back.
    """
    before = signal.getsignal(number)
    signals = Signals()
    signals.check()
    try:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted) as caught:
            signals.check()
    finally:
        signals.restore()

    assert number == caught.value.signal
    assert before == signal.getsignal(number)


def test_another_thread_hears_none() -> None:
    """
    Only the main thread may set handlers; elsewhere a job runs without.
    """
    found: list[object] = []

    def body() -> None:
        signals = Signals()
        signals.check()
        signals.restore()
        found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join(10)

    assert [before] == found
