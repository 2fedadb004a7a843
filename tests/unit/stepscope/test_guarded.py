"""
Registered profilers that hang: whoever waits for them waits only so long, and they are not used until they return.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.profilers import Armed, Recording, Registry, Request, UnavailableError
from stepscope.profilers.guarded import Guarded
from tests.unit.stepscope.fake_profiler import FakeProfiler
from tests.unit.stepscope.fake_sidecar import until

SHORT = 0.5
"""Seconds after which a call counts as hanging; those here that return do so at once."""

LONG = 30.0
"""Seconds that nothing here takes."""


class Sluggish(FakeProfiler):
    """
    One whose calls wait to be let go, and that notes on which thread they came.
    """

    def __init__(self) -> None:
        super().__init__("x-sluggish")
        self.go = threading.Event()
        self.threads: list[str] = []
        self.idents: list[int] = []

    def _call(self, what: str) -> None:
        self.threads.append(threading.current_thread().name)
        self.idents.append(threading.get_native_id())
        super()._call(what)
        assert self.go.wait(LONG)


@pytest.fixture
def profiler() -> Iterator[Sluggish]:
    """
    One that hangs until let go; let go in the end in any case.
    """
    profiler = Sluggish()
    yield profiler
    profiler.go.set()


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """
    A window.
    """
    return Request(window="w", level="spans", folder=tmp_path)


def test_it_is_stopped_by_the_thread_that_started_it(profiler: Sluggish, request_: Request) -> None:
    """
    And by no thread of the caller's; afterwards that thread is gone.
    """
    profiler.go.set()
    guarded = Guarded(profiler, deadline=LONG)

    assert Armed(level="spans") == guarded.start(request_)
    assert isinstance(guarded.stop(request_), Recording)
    assert ["start", "stop"] == profiler.calls
    assert ["stepscope-profiler"] * 2 == profiler.threads
    until(lambda: "stepscope-profiler" not in {thread.name for thread in threading.enumerate()})


def test_a_stop_that_hangs_is_left_behind(profiler: Sluggish, request_: Request) -> None:
    """
    It is unavailable until the stop returns, and usable again then.
    """
    guarded = Guarded(profiler, deadline=LONG)
    profiler.go.set()
    guarded.start(request_)
    profiler.go.clear()
    guarded._deadline = SHORT

    with pytest.raises(TimeoutError, match=f"stop has not returned within {SHORT} s"):
        guarded.stop(request_)
    assert "its stop has not returned" == guarded.unavailable()
    with pytest.raises(UnavailableError, match="its stop has not returned"):
        guarded.start(request_)
    profiler.go.set()
    until(lambda: guarded.unavailable() is None)
    guarded._deadline = LONG
    guarded.start(request_)
    guarded.stop(request_)


def test_a_start_that_comes_too_late_is_stopped(profiler: Sluggish, request_: Request) -> None:
    """
    By the thread that started it, keeping nothing: no profiler stays on behind a window that is over.
    """
    guarded = Guarded(profiler, deadline=SHORT)

    with pytest.raises(TimeoutError, match="start"):
        guarded.start(request_)
    profiler.go.set()
    until(lambda: guarded.unavailable() is None)

    assert ["start", "stop"] == profiler.calls
    assert 1 == len(set(profiler.threads))
    assert [] == list(request_.folder.iterdir())


def test_one_that_does_not_say_whether_it_can_be_used_cannot(profiler: Sluggish) -> None:
    """
    Whoever asks waits only so long, and not again before it has answered.
    """
    asked: list[str] = []

    def unavailable() -> str | None:
        asked.append(threading.current_thread().name)
        assert profiler.go.wait(LONG)
        return None

    profiler.unavailable = unavailable  # type: ignore[method-assign]
    guarded = Guarded(profiler, deadline=SHORT)

    assert f"its unavailable has not returned within {SHORT} s" == guarded.unavailable()
    assert "its unavailable has not returned" == guarded.unavailable()
    profiler.go.set()
    until(lambda: guarded.unavailable() is None)
    assert {"stepscope-profiler"} == set(asked)


def test_asking_whether_it_can_be_used_leaves_its_recording_alone(profiler: Sluggish, request_: Request) -> None:
    """
    A sidecar that comes back asks while a window records; the thread that started it still stops it.
    """
    profiler.go.set()
    guarded = Guarded(profiler, deadline=LONG)
    guarded.start(request_)

    assert guarded.unavailable() is None
    guarded.stop(request_)
    assert 1 == len(set(profiler.idents))


@pytest.mark.parametrize("at", ["start", "stop"])
def test_what_it_raises_is_raised(profiler: Sluggish, request_: Request, at: str) -> None:
    """
    As if it had been called directly.
    """
    profiler.go.set()
    guarded = Guarded(profiler, deadline=LONG)
    profiler.errors[at] = ValueError("mine")

    def both() -> None:
        guarded.start(request_)
        guarded.stop(request_)

    with pytest.raises(ValueError, match="mine"):
        both()


def test_only_registered_ones_are_guarded() -> None:
    """
    Those of this package know what may run where; one that is bound to a thread says so.
    """
    bound, own, foreign = FakeProfiler("x-bound", thread_bound=True), FakeProfiler("torch"), FakeProfiler("x-other")
    registry = Registry()
    for profiler in (bound, own, foreign):
        registry.add(profiler)

    assert bound is registry.find("x-bound")
    assert own is registry.find("torch")
    assert isinstance(registry.find("x-other"), Guarded)
