"""
Mirroring spans: which are marked, which are remembered, and that no mark outlives the window.
"""

import threading
from dataclasses import replace

import pytest

from stepscope import bridge, wire
from stepscope.bridge import Bridge, Marker
from stepscope.profilers import MAX_NAME, label, plain
from tests.unit.stepscope.closes import CLOSED


class Timeline:
    """
    A profiler's timeline that notes what is begun and ended.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[object] = []

    def marker(self) -> Marker:
        """
        The two calls that the bridge needs.
        """

        def enter(text: str) -> object:
            self.begun.append(text)
            return text

        return Marker(enter=enter, exit=self.ended.append)


def test_a_span_of_the_window_is_marked_under_its_name_and_id() -> None:
    """
    A span that begins and ends inside is mirrored, and there is nothing left to add.
    """
    timeline = Timeline()
    mirror = Bridge(marker=timeline.marker())

    mirror.started(0xAB, "train")
    mirror.ended(0xAB)
    marks = mirror.finish()

    assert ["train #00000000000000ab"] == timeline.begun == timeline.ended
    assert (["00000000000000ab"], 0, []) == (marks.mirrored, marks.dropped, marks.continued)


def test_a_span_is_told_the_times_of_its_mark() -> None:
    """
    They are read right after its mark has begun and ended; one that has no mark is told none.
    """
    timeline = Timeline()
    moments = iter(range(100, 200))
    mirror = Bridge(marker=timeline.marker(), clock=lambda: next(moments))
    outside = Bridge(marker=None, clock=lambda: 7)

    begun, ended = mirror.started(1, "train"), mirror.ended(1)

    assert 100 < begun < ended
    assert (0, 0) == (outside.started(1, "train"), outside.ended(1))
    assert 0 == mirror.ended(1)


def test_a_span_that_waits_while_marks_are_ended_begins_after_the_window() -> None:
    """
    It is in no recording; with the time at which it began to wait it would be missing there.
    """
    moments = iter(range(100, 200))
    ending, waits = threading.Event(), threading.Event()
    begun: list[int] = []

    def clock() -> int:
        if threading.current_thread() is thread:
            # What a span's own time would be; the lock is taken next.
            waits.set()
        return next(moments)

    def late() -> None:
        ending.wait()
        begun.append(mirror.started(2, "late"))

    def leave(handle: object) -> None:
        ending.set()
        assert waits.wait(60)

    thread = threading.Thread(target=late)
    mirror = Bridge(marker=Marker(enter=lambda text: text, exit=leave), clock=clock)
    mirror.started(1, "train")
    thread.start()
    marks = mirror.finish()
    thread.join()

    assert ["0000000000000001"] == marks.mirrored
    assert marks.over_unix_ns < begun[0]
    assert marks.over_unix_ns == mirror.finish().over_unix_ns


def test_open_marks_are_ended_by_the_close_and_only_once() -> None:
    """
    The closing thread ends them; the span's own end, which comes later, finds nothing.
    """
    timeline = Timeline()
    mirror = Bridge(marker=timeline.marker(), clock=lambda: 7)

    mirror.started(1, "long")
    marks = mirror.finish()
    mirror.ended(1)
    mirror.started(2, "late")

    assert 1 == len(timeline.begun) == len(timeline.ended)
    assert [(7, 0)] == [(span.start_unix_ns, span.end_unix_ns) for span in marks.continued]


def test_spans_begun_before_the_window_are_reported_with_their_real_times() -> None:
    """
    One that ends inside has its end, one that is still open has none.
    """
    ident = threading.get_ident()
    mirror = Bridge(
        marker=Timeline().marker(), live=[(1, "ends", 10, ident), (2, "stays", 20, ident)], clock=lambda: 50
    )

    mirror.ended(1)
    marks = mirror.finish()

    assert [] == marks.mirrored
    assert [("ends", 10, 50), ("stays", 20, 0)] == [(s.name, s.start_unix_ns, s.end_unix_ns) for s in marks.continued]
    assert {threading.get_native_id()} == {span.thread for span in marks.continued}


def test_spans_of_other_threads_are_remembered_where_only_one_thread_is_recorded() -> None:
    """
    They are not marked: the profiler would not see them.
    """
    timeline = Timeline()
    mirror = Bridge(marker=timeline.marker(), thread=threading.get_native_id())

    def work() -> None:
        mirror.started(1, "elsewhere")
        mirror.ended(1)
        natives.append(threading.get_native_id())

    natives: list[int] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    marks = mirror.finish()

    assert [] == timeline.begun
    assert natives == [span.thread for span in marks.continued]
    assert marks.continued[0].end_unix_ns >= marks.continued[0].start_unix_ns > 0


def test_a_mark_that_cannot_be_begun_is_left_to_finalising() -> None:
    """
    The span goes on, and is reported with its real times.
    """

    def enter(text: str) -> object:
        raise RuntimeError(text)

    mirror = Bridge(marker=Marker(enter=enter, exit=lambda handle: None), clock=lambda: 7)
    mirror.started(1, "train")
    mirror.ended(1)
    marks = mirror.finish()

    assert [] == marks.mirrored
    assert [("train", 7, 7)] == [(span.name, span.start_unix_ns, span.end_unix_ns) for span in marks.continued]


def test_lists_are_bounded_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A close record stays below the limit of a message whatever the loop does.
    """
    monkeypatch.setattr(bridge, "MAX_LISTED", 2)
    timeline = Timeline()
    mirror = Bridge(marker=timeline.marker())

    for number in range(5):
        mirror.started(number, "s")
        mirror.ended(number)
    marks = mirror.finish()

    assert (2, 3, 5) == (len(marks.mirrored), marks.dropped, len(timeline.begun))


def test_whatever_spans_are_called_a_close_record_is_a_message() -> None:
    """
    As many as are listed, with names that are long, not in ASCII, or no text at all.
    """
    mirror = Bridge(marker=None)
    long = "x" * (MAX_NAME + 1)
    names = [long, long, long, "漢字" * 100, 7, b"x"]

    for number in range(2 * bridge.MAX_LISTED):
        mirror.started(number, names[number % len(names)])  # type: ignore[arg-type]  # what is tested
        mirror.ended(number)
    marks = mirror.finish()
    closed = replace(
        CLOSED,
        mirrored=[f"{number:016x}" for number in range(bridge.MAX_LISTED)],
        continued=marks.continued,
    )

    assert wire.MAX_LINE > len(wire.encode(closed))
    assert 2 * bridge.MAX_LISTED == marks.dropped + len(marks.continued)
    assert {"x" * MAX_NAME, "", "7", "b'x'"} == {span.name for span in marks.continued}


def test_forsaken_marks_are_neither_ended_nor_freed() -> None:
    """
    Ending or freeing a mark of a session that is not ours any more writes into it.
    """
    timeline = Timeline()
    mirror = Bridge(marker=timeline.marker())
    before = len(bridge._forsaken)

    mirror.started(1, "train")
    mirror.forsake()

    assert [] == timeline.ended
    assert before + 1 == len(bridge._forsaken)


def test_a_mark_that_cannot_be_ended_does_not_keep_others_open() -> None:
    """
    Every mark is tried.
    """
    ended: list[object] = []

    def leave(handle: object) -> None:
        ended.append(handle)
        raise RuntimeError("broken")

    mirror = Bridge(marker=Marker(enter=lambda text: text, exit=leave))
    mirror.started(1, "a")
    mirror.started(2, "b")

    mirror.finish()

    assert 2 == len(ended)


@pytest.mark.parametrize(
    ("name", "expected"), [('a"b\\c', "abc"), ("é\n\t", ""), ("x" * 1000, "x" * MAX_NAME), ("plain name", "plain name")]
)
def test_labels_hold_nothing_that_a_recording_cannot(name: str, expected: str) -> None:
    """
    Anything but printable ASCII without quotes and backslashes makes the file no JSON.
    """
    assert f"{expected} #0000000000000001" == label(name, 1)


def test_metadata_values_are_percent_encoded() -> None:
    """
    What was said can be read back.
    """
    assert "100%25 %22caf%C3%A9%22" == plain('100% "café"')
