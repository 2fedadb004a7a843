"""
Boundary calls that come while a window is opening, in other tasks or on other threads, and between two steps.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

import stepscope
from stepscope import flow
from stepscope.complaints import Complaints
from stepscope.testing import Captured, FakeWindows, capture_spans
from stepscope.turn import Turn
from tests.unit.stepscope.desk import Rig
from tests.unit.stepscope.fake_profiler import FakeEngine
from tests.unit.stepscope.fake_sidecar import PATIENCE
from tests.unit.stepscope.told import closes


class Slow:
    """
    Has windows that are opened by coroutines wait until they are let go, as those of an engine do.
    """

    def __init__(self, windows: FakeWindows, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opening = asyncio.Event()
        self.go = asyncio.Event()
        self._windows = windows
        monkeypatch.setattr(windows, "aopen", self._aopen)

    async def _aopen(
        self, *, step: int, param_version: int, forced: bool = False, late: bool = False, roaming: bool = False
    ) -> bool:
        self.opening.set()
        await self.go.wait()
        return self._windows.open(step=step, param_version=param_version, forced=forced, late=late)

    async def start(self) -> asyncio.Task[dict[str, str]]:
        """
        A task that starts profiling, and is at it.
        """
        task = asyncio.create_task(stepscope.astart_profiling())
        await self.opening.wait()
        return task


async def soon(work: Coroutine[object, object, object]) -> asyncio.Task[object]:
    """
    A task that has come as far with ``work`` as it can without anybody else.
    """
    task = asyncio.create_task(work)
    for _ in range(10):
        await asyncio.sleep(0)
    return task


async def behind(slow: Slow, work: Coroutine[object, object, object]) -> None:
    """
    Begin ``work`` while a window opens: it ends once that is open, and not before.
    """
    starting = await slow.start()
    working = await soon(work)
    assert not working.done()
    slow.go.set()
    await working
    await starting


def run(body: Callable[[Slow], Awaitable[None]], captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Run ``body`` with windows that are slow to open.
    """

    async def main() -> None:
        await body(Slow(captured.agent.windows, monkeypatch))

    asyncio.run(main())


def test_nothing_is_recorded_for_a_replicas_step_that_is_over() -> None:
    """
    Between its pause and the new weights: the answer says so, and the next step is recorded whole.
    """
    with capture_spans(role="rollouter", selected={2}) as captured:
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        answer = stepscope.start_profiling()
        stepscope.weights_loaded(1)
        during = stepscope.start_profiling()
        stepscope.weights_loading()

    assert {"state": "denied", "reason": "boundary", "window": ""} == answer
    assert "recording" == during["state"]
    assert [(2, False)] == [(told["step"], told["late"]) for told in captured.agent.windows.of("open")]
    assert [(1, "boundary", "")] == closes(captured)


def test_a_pause_waits_for_the_window_that_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And ends it, before the weights change.
    """
    with capture_spans(role="rollouter") as captured:

        async def body(slow: Slow) -> None:
            await stepscope.aweights_loaded(0)
            await behind(slow, stepscope.aweights_loading())
            await stepscope.aweights_loaded(1)

        run(body, captured, monkeypatch)
        assert [(0, "boundary", "opened_late")] == closes(captured)
        assert [1] == [told["step"] for told in captured.agent.windows.of("open")]


def test_an_update_waits_for_the_window_that_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The trainer's step does not end around it.
    """
    with capture_spans() as captured:

        async def body(slow: Slow) -> None:
            async with stepscope.step():
                await behind(slow, stepscope.aweights_published(1))

        run(body, captured, monkeypatch)
        assert [(0, "boundary", "opened_late")] == closes(captured)
        assert 1 == stepscope.current_version()


def test_a_stop_waits_for_the_window_that_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is not lost.
    """
    with capture_spans(role="rollouter") as captured:

        async def body(slow: Slow) -> None:
            await stepscope.aweights_loaded(0)
            await behind(slow, stepscope.astop_profiling())

        run(body, captured, monkeypatch)
        assert [(0, "stopped_by_user", "opened_late")] == closes(captured)
        assert not captured.agent.windows.recording


async def _pause() -> None:
    stepscope.weights_loading()


async def _stop() -> None:
    stepscope.stop_profiling()


@pytest.mark.parametrize(
    "call", [_pause, _stop, stepscope.aweights_loading, stepscope.astop_profiling], ids=lambda call: call.__name__
)
def test_a_window_is_not_kept_that_a_call_could_not_wait_for(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], Coroutine[object, object, object]]
) -> None:
    """
    A plain call on the event loop cannot wait at all, a coroutine only so long. Nothing is recorded under a false step.
    """
    monkeypatch.setattr(flow, "PATIENCE", 0.01)
    with capture_spans(role="rollouter") as captured:

        async def body(slow: Slow) -> None:
            await stepscope.aweights_loaded(0)
            starting = await slow.start()
            await asyncio.wait_for(call(), PATIENCE)
            slow.go.set()
            await starting

        run(body, captured, monkeypatch)
        windows = captured.agent.windows
        assert ([], 1, False) == (windows.of("started"), len(closes(captured)), windows.recording)


def test_new_weights_end_what_records_for_a_step_that_never_ran() -> None:
    """
    A window opened before the first load, which then told another version.
    """
    with capture_spans(role="rollouter", selected={6}) as captured:
        stepscope.start_profiling()
        stepscope.weights_loaded(5)
        stepscope.weights_loading()

    assert [1, 6] == [told["step"] for told in captured.agent.windows.of("open")]
    assert [(0, "boundary", "closed_late"), (5, "boundary", "")] == closes(captured)


def test_a_window_opened_after_a_step_was_left_is_late() -> None:
    """
    The step was broken off before its update, and holds no more work; the window does not have what it had.
    """
    with capture_spans() as captured:
        with pytest.raises(KeyError), stepscope.step():
            raise KeyError("x")
        stepscope.start_profiling()
        stepscope.weights_published(1)

    assert [True] == [told["late"] for told in captured.agent.windows.of("open")]
    assert [(0, "boundary", "opened_late")] == closes(captured)


def test_a_window_opened_before_a_step_is_whole() -> None:
    """
    The step was not entered yet.
    """
    with capture_spans() as captured:
        stepscope.start_profiling()
        with stepscope.step():
            stepscope.weights_published(1)

    assert [(0, "boundary", "")] == closes(captured)


def test_a_cancelled_wait_keeps_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The weights are out, although the task was cancelled before its turn had come.
    """
    with capture_spans() as captured:

        async def body(slow: Slow) -> None:
            async with stepscope.step():
                starting = await slow.start()
                publishing = await soon(stepscope.aweights_published(1))
                publishing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await publishing
                slow.go.set()
                await starting

        run(body, captured, monkeypatch)
        assert 1 == stepscope.current_version()
        assert ([], False) == (captured.agent.windows.of("started"), captured.agent.windows.recording)


def test_a_step_whose_turn_was_not_awaited_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nobody would leave it: the next one is a step like any other.
    """
    with capture_spans() as captured:

        async def step() -> None:
            async with stepscope.step():
                raise AssertionError("was entered")

        async def body(slow: Slow) -> None:
            starting = await slow.start()
            entering = await soon(step())
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            slow.go.set()
            await starting
            async with stepscope.step():
                await stepscope.aweights_published(1)

        said: list[str] = []
        monkeypatch.setattr(Complaints, "warn", lambda self, kind, *_, **__: said.append(kind))
        run(body, captured, monkeypatch)
        assert [] == said
        assert 1 == stepscope.current_version()


def test_no_second_profiler_starts_while_an_engines_does(tmp_path: Path) -> None:
    """
    Whoever asks meanwhile is told that the process is busy.
    """
    engine = FakeEngine()
    engine.hang = True
    rig = Rig(tmp_path, engine)

    async def body() -> None:
        starting = await soon(rig.windows.aopen(step=5, param_version=4))
        assert not await rig.windows.aopen(step=6, param_version=5)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(body())
    rig.windows.end(version=5, timeout=5)

    assert ["start"] == engine.calls
    assert ["busy_process"] == rig.desk.missed


def test_nobody_waits_for_a_turn_that_this_thread_has() -> None:
    """
    It could not be given back meanwhile; another thread's is waited for.
    """
    turn, waiting = Turn(), threading.Event()
    assert turn.take(0.0)
    taken: list[bool] = []

    def other() -> None:
        waiting.set()
        taken.append(turn.take(PATIENCE))
        turn.give()

    thread = threading.Thread(target=other)
    thread.start()
    assert waiting.wait(PATIENCE)
    assert not turn.take(float(threading.TIMEOUT_MAX))
    turn.give()
    thread.join(PATIENCE)

    assert [True] == taken
