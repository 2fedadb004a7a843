"""
What spans add up and whom they wake, also where the handler of a signal begins and ends one in the midst of another.
"""

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import stepscope
from stepscope import bridge, connection, export, place, slot, steptimes, tally, watchdog
from stepscope.bridge import Bridge, Marker
from stepscope.export import Outbox
from stepscope.tally import FOLDED, Bell, Tally
from stepscope.testing import capture_spans
from tests.unit.stepscope.fake_sidecar import PATIENCE

INSTRUMENTED = {
    str(module.__file__) for module in (bridge, connection, export, place, slot, steptimes, tally, watchdog)
}
"""Modules in each line of which a signal comes."""


def interrupted(work: Callable[[], object], handler: Callable[[], object]) -> int:
    """
    Run ``work`` with a signal before every line of ours, whose handler runs ``handler``; how many came.

    On a thread's trace function instead of as a signal: it runs at the same places, on the same thread.
    """
    came = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal came
        if frame.f_code.co_filename not in INSTRUMENTED:
            return None
        if event == "line":
            came += 1
            sys.settrace(None)
            handler()
            sys.settrace(trace)
        return trace

    before = sys.gettrace()

    def run() -> None:
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits for itself"
    return came


def span(name: str, *, request: bool = False) -> None:
    """
    Begin and end a span with all that can be said of it.
    """
    with stepscope.span(name, bucket="productive", request=request):
        pass


def test_a_signals_handler_may_end_spans_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Of a span that begins or ends: nothing waits for itself, and nothing is lost from the sums.
    """
    monkeypatch.setattr(tally, "FOLDED", 3)
    with capture_spans(selected=set()) as captured:
        with stepscope.step():
            came = interrupted(lambda: span("below", request=True), lambda: span("in the handler", request=True))
            stepscope.weights_published(1)
        found = stepscope.timings()

    ended = [one for one in captured.spans if one.name in {"below", "in the handler"}]
    assert came >= 8
    assert came + 1 == len(ended)
    assert sum(one.end_unix_ns - one.start_unix_ns for one in ended) / 1e9 == pytest.approx(
        found["stepscope/bucket/productive_seconds"]
    )


def test_a_real_signal_in_the_midst_of_the_sums_holds_nothing_up() -> None:
    """
    On the main thread, where handlers run.
    """
    ended = []

    def handler(number: int, frame: FrameType | None) -> None:
        span("in the handler")
        ended.append(number)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename == str(Path(str(tally.__file__))) and not ended:
            sys.settrace(None)
            signal.raise_signal(signal.SIGUSR1)
        return None

    before, former = sys.gettrace(), signal.signal(signal.SIGUSR1, handler)
    try:
        with capture_spans() as captured, stepscope.step():
            sys.settrace(trace)
            span("below")
            sys.settrace(before)
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGUSR1, former)

    assert [signal.SIGUSR1] == ended
    assert {"below", "in the handler"} <= {one.name for one in captured.spans}


def test_marks_are_made_in_a_handler_too() -> None:
    """
    Every mark that is made is ended, and each span is listed once.
    """
    opened: list[str] = []
    closed: list[object] = []

    def enter(name: str) -> str:
        opened.append(name)
        return name

    found = Bridge(marker=Marker(enter=enter, exit=closed.append))
    numbers = iter(range(100, 1000))

    def handler() -> None:
        number = next(numbers)
        found.started(number, "in the handler")
        found.ended(number)

    def work() -> None:
        found.started(1, "below")
        found.ended(1)

    came = interrupted(work, handler)
    marks = found.finish()

    assert sorted(opened) == sorted(str(one) for one in closed)
    assert came + 1 == len(marks.mirrored) == len(set(marks.mirrored))


def test_spans_are_handed_over_in_a_handler_too() -> None:
    """
    Also where there is no more room, and where the exporter is woken.
    """
    lost: list[int] = []
    outbox = Outbox(endpoint=str, dropped=lambda counts: lost.append(sum(counts.values())), capacity=2, delay=PATIENCE)
    some: Any = object()

    def work() -> None:
        outbox(some)
        outbox.hurry()

    came = sum(interrupted(work, work) for _ in range(3))
    outbox.shutdown(0.0)
    outbox._thread.join(PATIENCE)

    assert came + 3 == sum(lost)


def test_sums_are_kept_small_and_lose_nothing() -> None:
    """
    Where nobody asks for them; reading does not take.
    """
    found = Tally()
    for _ in range(3 * FOLDED):
        found.add("a")
    found.add("b", 0.5)

    assert len(found._added) <= FOLDED + 1
    assert {"a": 3 * FOLDED, "b": 0.5} == found.sums() == found.take()
    assert {} == found.take()


def test_a_bell_that_rang_before_ends_the_next_wait_only() -> None:
    """
    However often it rang.
    """
    bell = Bell()
    for _ in range(3):
        bell.ring()
    bell.wait(PATIENCE)

    bell.wait(0.0)
    assert bell._rings.empty()
