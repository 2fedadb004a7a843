"""
Windows whose profiler belongs to the thread that started it.
"""

import pytest

from tests.unit.stepscope.desk import Rig, elsewhere


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_stop_waits_for_the_owners_next_span(bound: Rig, at: str) -> None:
    """
    A thread-bound profiler is stopped by its thread alone.
    """
    bound.open()
    bound.windows.span_started(1, "process")
    bound.windows.stop("w1", "stopped_by_user")
    elsewhere(lambda: bound.windows.span_started(2, "other"))
    assert bound.windows.recording

    if at == "start":
        bound.windows.span_started(3, "next")
    else:
        bound.windows.span_ended(1)

    assert ["stopped_by_user"] == [item.reason for item in bound.desk.closed]
    assert "enter next #0000000000000003" not in bound.profiler.calls


def test_a_boundary_on_another_thread_is_left_to_the_owner(bound: Rig) -> None:
    """
    The window ends at the owner's next span, says why, and the next one is to be safe on any thread.
    """
    bound.open()
    elsewhere(lambda: bound.windows.close(version=5))
    assert bound.windows.recording

    bound.windows.span_started(9, "next")
    bound.open(6)

    assert [("wrong_thread", "closed_late", 5)] == [
        (item.reason, item.incomplete, item.version_at_close) for item in bound.desk.closed
    ]
    assert [False, True] == bound.profiler.roaming


def test_the_owners_next_step_ends_what_was_left_to_it(bound: Rig) -> None:
    """
    Without a span in between.
    """
    bound.open()
    elsewhere(lambda: bound.windows.close(version=5))

    assert bound.open(6)
    assert ["wrong_thread"] == [item.reason for item in bound.desk.closed]


def test_a_window_whose_owner_has_gone_is_given_up(bound: Rig) -> None:
    """
    Nobody stops its profiler; the next step can record.
    """
    elsewhere(bound.open)

    assert bound.open(6)
    assert [("failed", "wrong_thread")] == bound.desk.ended
    assert ["start", "abandon", "start"] == bound.profiler.calls


def test_a_thread_in_the_owners_stead_is_not_the_owner(bound: Rig) -> None:
    """
    Python often gives the ident of a thread that ended to the next one; the first one's profiler is not touched there.
    """
    elsewhere(bound.open)
    for _ in range(5):
        elsewhere(lambda: bound.windows.close(version=5))
    stopped = "stop" in bound.profiler.calls
    bound.windows.end(version=5, timeout=1.0)

    assert not stopped
    assert [("failed", "wrong_thread")] == bound.desk.ended


def test_at_exit_another_threads_window_is_given_up(bound: Rig) -> None:
    """
    Stopping it would crash the exit.
    """
    elsewhere(bound.open)
    bound.windows.end(version=4, timeout=5)

    assert [("failed", "wrong_thread")] == bound.desk.ended
    assert "stop" not in bound.profiler.calls
