"""
Signals held back while a profiler starts or stops, and what their handlers raise in the midst of our code.
"""

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import stepscope
from stepscope import interrupts
from stepscope.complaints import Complaints
from stepscope.flow import Closing, Flow, Opening, adrive, drive
from stepscope.testing import capture_spans
from tests.unit.stepscope.desk import SPAN, TRACE, Rig
from tests.unit.stepscope.fake_profiler import FakeProfiler
from tests.unit.stepscope.fake_sidecar import PATIENCE


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


def test_handlers_are_back_though_one_raises_as_they_are_put_back(
    ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Its signal comes as soon as it is back: before, in or after the call for the next. What was held back still runs.
    """
    genuine = signal.signal
    before = {number: signal.getsignal(number) for number in interrupts.HELD}
    storm: list[int] = []

    def storming(number: int, handler: Any) -> Any:
        if storm and signal.getsignal(signal.SIGUSR1) is before[signal.SIGUSR1]:
            # As where the signal is due when the call begins: nothing is exchanged, and its handler raises.
            signal.raise_signal(storm.pop())
        former = genuine(number, handler)
        if storm and signal.getsignal(signal.SIGUSR1) is before[signal.SIGUSR1]:
            signal.raise_signal(storm.pop())
        return former

    monkeypatch.setattr(signal, "signal", storming)

    def block() -> None:
        with interrupts.held():
            signal.raise_signal(signal.SIGUSR2)
            storm.extend([signal.SIGUSR1] * 2)

    with pytest.raises(Told):
        block()

    assert before == {number: signal.getsignal(number) for number in interrupts.HELD}
    assert [signal.SIGUSR1, signal.SIGUSR1, signal.SIGUSR2] == ran


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


class Handler:
    """
    A handler that is an object.
    """

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """
        Raise.
        """
        raise Told

    def method(self, number: int, frame: FrameType | None) -> None:
        """
        The same.
        """
        raise Told


def raises(number: int, frame: FrameType | None, *, error: type[Exception] = Told) -> None:
    """
    A handler that is a function.
    """
    raise error


@pytest.mark.parametrize(
    "handler",
    [raises, functools.partial(raises, error=TimeoutError), Handler(), Handler().method],
    ids=["function", "partial", "object", "method"],
)
def test_what_a_handler_raises_is_told_from_an_error_of_ours(
    handler: Callable[[int, FrameType | None], None], ran: list[int]
) -> None:
    """
    In whatever code of ours it comes up, it is raised again and not complained about.
    """
    signal.signal(signal.SIGUSR2, handler)

    def ours(*, interrupted: bool) -> None:
        try:
            if interrupted:
                signal.raise_signal(signal.SIGUSR2)
            raise ValueError("ours")
        except Exception as error:  # noqa: BLE001 - what is tested
            Complaints().fault("a test", error)

    ours(interrupted=False)
    with pytest.raises((Told, TimeoutError)):
        ours(interrupted=True)


class Signalled(FakeProfiler):
    """
    A profiler in whose start or stop, whichever ``when`` is, a signal comes.
    """

    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when

    def _call(self, what: str) -> None:
        if what == self._when:
            signal.raise_signal(signal.SIGUSR1)
        super()._call(what)


@pytest.mark.parametrize("when", ["start", "stop"])
def test_what_a_handler_raises_within_a_boundary_reaches_the_program_after_it(
    when: str, ran: list[int], tmp_path: Path
) -> None:
    """
    Everything that belongs to the boundary has been done by then.
    """
    rig = Rig(tmp_path, Signalled(when))
    done: list[str] = []

    def flow() -> Flow:
        yield Opening(step=1, param_version=0)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        yield Closing(version=1, reason="boundary")
        done.append("all")

    with pytest.raises(Told):
        drive(flow(), rig.windows)
    rig.windows.end(version=1, timeout=PATIENCE)

    assert ["all"] == done
    assert ["start", "stop"] == rig.profiler.calls
    assert ["boundary"] == [record.reason for record in rig.desk.closed]


def test_a_coroutine_puts_its_things_in_order_first(ran: list[int], tmp_path: Path) -> None:
    """
    There what a handler raises passes through the flow, as a cancellation does.
    """
    rig = Rig(tmp_path, Signalled("start"))
    seen: list[str] = []

    def flow() -> Flow:
        try:
            yield Opening(step=1, param_version=0)
        except Told:
            seen.append(rig.profiler.calls[-1])
            yield Closing(version=0, reason="exception")
            raise

    with pytest.raises(Told):
        asyncio.run(adrive(flow(), rig.windows))
    rig.windows.end(version=0, timeout=PATIENCE)

    assert ["start"] == seen
    assert ["start", "stop"] == rig.profiler.calls


def test_a_step_that_a_signal_keeps_from_being_entered_is_left(ran: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Its window is closed, and the step can be entered again.
    """
    with capture_spans(selected={1}) as captured:
        windows = captured.agent.windows
        opened = windows.open

        def interrupted(**asked: Any) -> bool:
            signal.raise_signal(signal.SIGUSR1)
            return opened(**asked)

        monkeypatch.setattr(windows, "open", interrupted)
        with pytest.raises(Told), stepscope.step():
            pytest.fail("the block was entered")
        with stepscope.step():
            stepscope.weights_published(1)

        assert [("exception", "not_published")] == [
            (told["reason"], told["incomplete"]) for told in windows.of("close")
        ]
        assert 1 == stepscope.current_version()
