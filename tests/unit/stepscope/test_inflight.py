"""
What is in flight when a session ends: annotations are ended with it, operators are waited for.
"""

import threading
import time
from collections.abc import Iterator
from typing import Self

import pytest

from stepscope.profilers import inflight
from stepscope.profilers.inflight import Annotations, Grace


class Block:
    """
    Stands for ``record_function``: what is entered and left is counted.
    """

    log: list[str]

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.run_callbacks_on_exit = True

    def __enter__(self) -> Self:
        """
        As torch's does.
        """
        self.log.append(f"+{self.name}")
        return self

    def __exit__(self, *error: object) -> None:
        """
        As torch's does: the flag says whether there is anything to end.
        """
        if self.run_callbacks_on_exit:
            self.log.append(f"-{self.name}")


@pytest.fixture
def log() -> list[str]:
    """
    What happened to blocks, in order.
    """
    return []


@pytest.fixture
def annotations() -> Iterator[Annotations]:
    """
    A tracker of :class:`Block`, whose methods are as before afterwards.
    """
    before = (Block.__enter__, Block.__exit__)
    tracker = Annotations(Block)
    yield tracker
    tracker.release()
    assert before == (Block.__enter__, Block.__exit__)


def test_open_blocks_are_ended_once(annotations: Annotations, log: list[str]) -> None:
    """
    By the end of the session, and not again by their own.
    """
    annotations.track(thread=None)
    with Block("a", log), Block("b", log):
        with Block("c", log):
            pass
        annotations.finish()

    assert ["+a", "+b", "+c", "-c"] == log[:4]
    assert {"-a", "-b"} == set(log[4:])
    assert 6 == len(log)


def test_a_block_that_is_entered_again_can_be_ended_again(annotations: Annotations, log: list[str]) -> None:
    """
    Ending it early does not silence it for ever.
    """
    annotations.track(thread=None)
    block = Block("a", log)
    with block:
        annotations.finish()
    with block:
        pass

    assert ["+a", "-a", "+a", "-a"] == log


def test_blocks_of_other_threads_are_left_alone_where_one_is_recorded(annotations: Annotations, log: list[str]) -> None:
    """
    A thread-bound session has not seen them.
    """
    annotations.track(thread=threading.get_native_id())
    block = Block("other", log)
    thread = threading.Thread(target=block.__enter__)
    thread.start()
    thread.join()

    annotations.finish()

    assert ["+other"] == log


def test_blocks_begun_before_are_left_alone(annotations: Annotations, log: list[str]) -> None:
    """
    The session has not seen them either.
    """
    with Block("before", log):
        annotations.track(thread=None)
        annotations.finish()

        assert ["+before"] == log


class Time:
    """
    A clock that moves when somebody waits.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        """
        The time.
        """
        return self.now

    def wait(self, seconds: float) -> None:
        """
        Let it pass.
        """
        self.now += seconds


RAN = 0.5
"""Share of what a thread wants of the processors that it gets."""


@pytest.mark.parametrize(
    ("where", "wants", "expected"),
    [
        ([{}], [0.0], 0.0),
        ([{1: (7, 1)}, {1: (7, 2)}], [0.0], inflight.POLL),
        ([{1: (7, 1)}, {1: (7, 1)}, {}], [0.0], 2 * inflight.POLL),
        ([{1: (7, 1)}], [0.0], inflight.BLOCKED),
        ([{1: (7, 1)}], [0.004], inflight.BLOCKED),
        ([{1: (7, 1)}], [1.0, 1.0, 0.0], 3 * inflight.BLOCKED),
        ([{1: (7, 1)}], [0.5], inflight.LIMIT),
        ([{1: (7, 1)}], [1.0], inflight.LIMIT / RAN),
        ([{1: (7, 1)}], [0.95], inflight.LIMIT / RAN / 0.95),
    ],
    ids=[
        *("nobody", "moved on", "ended", "blocked", "wakes now and then", "worked, then blocked"),
        *("works now and then", "has half a core", "has less"),
    ],
)
def test_a_thread_is_waited_for_until_it_cannot_be_in_an_operator(
    monkeypatch: pytest.MonkeyPatch, where: list[dict[int, tuple[int, int]]], wants: list[float], expected: float
) -> None:
    """
    It has moved on, has ended, wants hardly any of the processors, or has run as long as operators do. ``wants``: what
    share of each ``BLOCKED`` seconds, the last of them from then on; it gets ``RAN`` of that.
    """
    clock = Time()
    positions, shares = iter(where), iter(wants)
    last: list[dict[int, tuple[int, int]]] = [{}]
    counted, share, at = 0.0, 0.0, 0.0

    def look() -> dict[int, tuple[int, int]]:
        last[0] = next(positions, last[0])
        return last[0]

    def count(threads: object) -> dict[int, inflight.Counted]:
        nonlocal counted, share, at
        counted, at = counted + share * (clock.now - at), clock.now
        share = next(shares, share)
        return {1: inflight.Counted(int(RAN * counted * 1e9), int(counted * 1e9))}

    monkeypatch.setattr(inflight, "_positions", look)
    monkeypatch.setattr(inflight, "_counted", count)

    Grace(clock=clock.clock, wait=clock.wait).settle()

    assert expected == pytest.approx(clock.now, abs=1.5 * inflight.BLOCKED if expected > 0.5 else 4 * inflight.POLL)


def test_threads_that_wait_in_the_standard_library_are_not_waited_for() -> None:
    """
    They cannot be in an operator.
    """
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert thread.ident not in inflight._positions()
    finally:
        over.set()
        thread.join()


def test_the_most_crowded_machine_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A thread that wants a core and gets none.
    """
    clock = Time()
    monkeypatch.setattr(inflight, "_positions", lambda: {1: (7, 1)})
    monkeypatch.setattr(inflight, "_counted", lambda threads: {1: inflight.Counted(0, int(clock.now * 1e9))})

    Grace(clock=clock.clock, wait=clock.wait).settle()

    assert inflight.CROWDED == pytest.approx(clock.now, abs=inflight.BLOCKED)


def test_what_a_thread_has_wanted_is_known() -> None:
    """
    The kernel counts it; a thread that is not there has no count.
    """
    before = inflight._counted([threading.get_ident(), 1])
    deadline = time.monotonic() + 60
    while (after := inflight._counted(before)) == before and time.monotonic() < deadline:
        pass

    assert {threading.get_ident()} == set(before)
    assert after[threading.get_ident()] > before[threading.get_ident()] > (0, 0)
