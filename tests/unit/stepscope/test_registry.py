"""
The profilers of a process: which there are, and what is said of each.
"""

import threading

import pytest

from stepscope import profilers
from stepscope.profilers import Registry
from tests.unit.stepscope.fake_profiler import FakeEngine, FakeProfiler

WAIT = 30.0
"""Seconds that nothing here takes."""


class Broken(FakeProfiler):
    """
    One that cannot even say whether it can be used.
    """

    def unavailable(self) -> str | None:
        """
        Raises.
        """
        raise OSError("no such device")


class BrokenEngine(FakeEngine):
    """
    The same of an engine.
    """

    name = "x-engine"

    def unavailable(self) -> str | None:
        """
        Raises.
        """
        raise ValueError("no engine")


def test_one_that_raises_does_not_keep_the_others_from_being_told() -> None:
    """
    What it raised is why it is unavailable, however it is driven.
    """
    registry = Registry()
    for profiler in (Broken("x-guarded"), Broken("x-bound", thread_bound=True), BrokenEngine(), FakeProfiler("x-good")):
        registry.add(profiler)
    tools = registry.tools()

    assert tools["x-guarded"] == tools["x-bound"] == "OSError: no such device"
    assert "ValueError: no engine" == tools["x-engine"]
    assert "" == tools["x-good"]
    assert set(profilers.BUILT_IN) < set(tools)


def test_two_threads_that_ask_find_the_same_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Also where both find that it has not been made yet: one that is started must be the one that is stopped.
    """
    both = threading.Barrier(2)

    class Slow(FakeProfiler):
        def __init__(self) -> None:
            super().__init__("torch_memory")
            both.wait(WAIT)

    monkeypatch.setattr("stepscope.profilers.torch_memory.TorchMemory", Slow)
    registry, found = Registry(), list[object]()
    threads = [threading.Thread(target=lambda: found.append(registry.find("torch_memory"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)

    assert 2 == len(found)
    assert found[0] is found[1] is registry.find("torch_memory")
