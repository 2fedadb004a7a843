"""
Windows that end before the boundary: by an order, at a cap, at exit.
"""

import pytest

from stepscope import wire
from tests.unit.stepscope.desk import Rig
from tests.unit.stepscope.fake_sidecar import until


def test_a_stop_is_carried_out_at_once_where_any_thread_may(rig: Rig) -> None:
    """
    The boundary that comes later does nothing.
    """
    rig.open()
    rig.windows.stop("w1", "stopped_by_user")
    until(lambda: bool(rig.desk.closed))
    rig.windows.close(version=5)

    assert [("stopped_by_user", "stopped", 4)] == [
        (item.reason, item.incomplete, item.version_at_close) for item in rig.desk.closed
    ]


def test_a_stop_that_comes_while_opening_is_not_lost(rig: Rig) -> None:
    """
    It names a window that is only starting.
    """

    def grant() -> wire.Message | None:
        granted = rig.desk.grant()
        rig.windows.stop("w1", "stopped_by_user")
        return granted

    rig.desk.answer = grant
    rig.open()

    until(lambda: bool(rig.desk.closed))


def test_a_stop_ends_a_profiler_that_runs_on_past_its_step(rig: Rig) -> None:
    """
    It does not wait for work to resume after the update; the step is over when it was.
    """
    rig.open()
    rig.windows.linger(version=4)
    rig.windows.stop("w7", "stopped_by_user")
    assert rig.windows.lingering
    rig.windows.stop("w1", "stopped_by_user")
    until(lambda: bool(rig.desk.closed))

    assert not rig.windows.recording
    assert [("stopped_by_user", "stopped", 4)] == [
        (item.reason, item.incomplete, item.version_at_close) for item in rig.desk.closed
    ]


def test_the_owner_stops_one_that_runs_on_past_its_step(bound: Rig) -> None:
    """
    Where only its own thread may, at that thread's next span, although work has not been said to go on.
    """
    bound.open()
    bound.windows.linger(version=4)
    bound.windows.stop("w1", "stopped_by_user")
    assert bound.windows.recording
    bound.windows.span_started(7, "weights.load")

    assert ["stopped_by_user"] == [item.reason for item in bound.desk.closed]


def test_a_stop_for_another_window_is_ignored(rig: Rig) -> None:
    """
    It may be late.
    """
    rig.open()
    rig.windows.stop("w7", "stopped_by_user")
    rig.windows.close(version=5)

    assert ["boundary"] == [item.reason for item in rig.desk.closed]


def test_at_exit_ones_own_window_is_kept(rig: Rig) -> None:
    """
    What was recorded is finalised, and nothing opens any more.
    """
    rig.open()
    rig.windows.end(version=4, timeout=5)

    assert [("process_exit", "process_exit")] == [(item.reason, item.incomplete) for item in rig.desk.closed]
    assert not rig.open(6)


@pytest.mark.parametrize("thread_bound", [False, True])
def test_a_window_over_its_seconds_is_capped(rig: Rig, bound: Rig, thread_bound: bool) -> None:
    """
    It closes early, is kept, and says so.
    """
    chosen = bound if thread_bound else rig
    chosen.desk.caps = wire.Caps(seconds=0.01)
    chosen.open()
    chosen.seconds = 1.0

    def closed() -> bool:
        # The owner's next span, at which a thread-bound one is stopped.
        chosen.windows.span_ended(1)
        return bool(chosen.desk.closed)

    until(closed)

    assert [("cap_seconds", "capped")] == [(item.reason, item.incomplete) for item in chosen.desk.closed]


def test_a_window_over_its_bytes_is_capped(rig: Rig) -> None:
    """
    Marks are counted at what they take in the file.
    """
    rig.desk.caps = wire.Caps(bytes=1000)
    rig.open()
    for number in range(5):
        rig.windows.span_started(number, "s")

    until(lambda: bool(rig.desk.closed))
    assert "cap_bytes" == rig.desk.closed[0].reason
