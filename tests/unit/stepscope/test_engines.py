"""
Windows of an engine, whose profiler is driven by coroutines.
"""

import asyncio
import threading
from pathlib import Path

import pytest

from stepscope import recorder
from stepscope.profilers import Registry
from stepscope.windows import Windows
from tests.unit.stepscope.desk import SPAN, TRACE, Desk, Rig
from tests.unit.stepscope.fake_profiler import FakeEngine
from tests.unit.stepscope.fake_sidecar import until


class Placed(FakeEngine):
    """
    One that notes which loops run it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def _call(self, what: str) -> None:
        self.loops.append(asyncio.get_running_loop())
        await super()._call(what)


def closed_on_its_own_loop(rig: Rig, engine: Placed, calls: list[str]) -> None:
    """
    Look that the engine's profiler was stopped by the loop that started it, before the close came back.
    """
    rig.windows.end(version=5, timeout=5)
    assert ["start", "stop"] == calls
    assert 1 == len(set(engine.loops))
    assert ["boundary"] == [item.reason for item in rig.desk.closed]


def test_an_engine_is_driven_by_the_async_calls(tmp_path: Path) -> None:
    """
    Its start and stop are awaited; a plain call cannot drive it and says so.
    """
    engine = FakeEngine()
    rig = Rig(tmp_path, engine)

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        rig.windows.span_started(1, "rollout.generate")
        await rig.windows.aclose(version=5)

    asyncio.run(step())
    assert not rig.open(6)
    rig.windows.end(version=5, timeout=5)

    assert ["start", "stop"] == engine.calls
    assert ("engine.json", ["rollout.generate"]) == (
        rig.desk.closed[0].artifact,
        [span.name for span in rig.desk.closed[0].continued],
    )
    assert [("denied", "tool_unavailable")] == rig.desk.ended


def test_an_engine_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The loop goes on after the deadline.
    """
    monkeypatch.setattr(recorder, "ENGINE_DEADLINE", 0.05)
    engine = FakeEngine()
    rig = Rig(tmp_path, engine)

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        engine.hang = True
        await rig.windows.aclose(version=5)

    asyncio.run(step())
    rig.windows.end(version=5, timeout=5)

    assert [("failed", "stop_timeout")] == rig.desk.ended


def test_a_stop_reaches_an_engine_through_its_loop(tmp_path: Path) -> None:
    """
    The watchdog's thread cannot await; the loop that opened can.
    """
    rig = Rig(tmp_path, FakeEngine())

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        rig.windows.stop("w1", "stopped_by_user")
        await asyncio.to_thread(until, lambda: bool(rig.desk.closed), what="the close")

    asyncio.run(step())
    rig.windows.end(version=5, timeout=5)

    assert ["stopped_by_user"] == [item.reason for item in rig.desk.closed]


@pytest.mark.parametrize(("at", "reason"), [("start", "start_error"), ("stop", "stop_error")])
def test_a_task_cancelled_while_an_engine_is_at_it_ends_the_window(tmp_path: Path, at: str, reason: str) -> None:
    """
    The cancellation goes on, and the sidecar learns that nothing will come.
    """
    desk, engine = Desk(tmp_path), FakeEngine()
    desk.tool = engine.name
    windows = Windows(control=desk, profilers=Registry({engine.name: engine}), tool=engine.name)

    async def step() -> None:
        engine.hang = at == "start"
        await windows.aopen(step=5, param_version=4)
        windows.started(trace_id=TRACE, span_id=SPAN)
        engine.hang = True
        await windows.aclose(version=5)

    async def run() -> bool:
        task = asyncio.create_task(step())
        while at not in engine.calls:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    cancelled = asyncio.run(run())
    windows.end(version=5, timeout=1.0)

    assert cancelled
    assert [("failed", reason)] == desk.ended
    assert not windows.listed()


def test_a_plain_close_on_the_engines_loop_has_the_loop_stop_it(tmp_path: Path) -> None:
    """
    It cannot be waited for there, so it is done as soon as the loop goes on; until then no window opens.
    """
    engine = Placed()
    rig = Rig(tmp_path, engine)

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        rig.windows.close(version=5)
        assert not await rig.windows.aopen(step=6, param_version=5)
        await asyncio.to_thread(until, lambda: bool(rig.desk.closed), what="the close")

    asyncio.run(step())
    rig.windows.end(version=5, timeout=5)

    assert ["start", "stop"] == engine.calls
    assert 1 == len(set(engine.loops))
    assert [("boundary", 5)] == [(item.reason, item.version_at_close) for item in rig.desk.closed]
    assert ["busy_process"] == rig.desk.missed


def test_a_plain_close_on_another_thread_waits_for_the_engines_loop(tmp_path: Path) -> None:
    """
    When the call comes back the engine's profiler is off.
    """
    engine = Placed()
    rig = Rig(tmp_path, engine)

    async def step() -> list[str]:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)

        def close() -> list[str]:
            rig.windows.close(version=5)
            return list(engine.calls)

        return await asyncio.to_thread(close)

    closed_on_its_own_loop(rig, engine, asyncio.run(step()))


def test_a_close_on_another_loop_is_awaited_on_the_engines(tmp_path: Path) -> None:
    """
    A request to stop may be served by a thread with a loop of its own.
    """
    engine = Placed()
    rig = Rig(tmp_path, engine)

    async def step() -> list[str]:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)

        async def close() -> list[str]:
            await rig.windows.aclose(version=5)
            return list(engine.calls)

        return await asyncio.to_thread(lambda: asyncio.run(close()))

    closed_on_its_own_loop(rig, engine, asyncio.run(step()))


def test_an_engines_loop_that_ends_while_another_waits_cancels_nobody_there(tmp_path: Path) -> None:
    """
    The window fails, and the boundary goes on.
    """
    engine = Placed()
    rig = Rig(tmp_path, engine)
    outcome: list[str] = []

    async def close() -> None:
        await rig.windows.aclose(version=5)
        outcome.append("went on")

    other = threading.Thread(target=lambda: asyncio.run(close()))

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        engine.hang = True
        other.start()
        await asyncio.to_thread(until, lambda: "stop" in engine.calls, what="the stop")

    asyncio.run(step())
    other.join(10)
    rig.windows.end(version=5, timeout=5)

    assert ["went on"] == outcome
    assert [("failed", "stop_error")] == rig.desk.ended


def test_leaving_by_a_plain_call_on_the_engines_loop_does_not_wait_for_it(tmp_path: Path) -> None:
    """
    What only this thread could do would not be done meanwhile; it is done if the loop goes on.
    """
    engine = Placed()
    rig = Rig(tmp_path, engine)

    async def run() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        rig.windows.end(version=4, timeout=3600)
        await asyncio.to_thread(until, lambda: bool(rig.desk.closed), what="the close")

    asyncio.run(run())

    assert ["start", "stop"] == engine.calls


@pytest.mark.parametrize(
    ("way", "reason"), [("stop", "stop_error"), ("close", "stop_error"), ("end", "process_exit")], ids=lambda way: way
)
def test_an_engine_whose_loop_has_ended_fails_its_window(tmp_path: Path, way: str, reason: str) -> None:
    """
    Nobody can stop it any more, and nothing goes round in circles over it.
    """
    rig = Rig(tmp_path, FakeEngine())

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)

    asyncio.run(step())
    if way == "stop":
        rig.windows.stop("w1", "stopped_by_user")
    elif way == "close":
        rig.windows.close(version=5)
    else:
        rig.windows.end(version=5, timeout=5)
    until(lambda: bool(rig.desk.ended), what="the end")
    rig.windows.end(version=5, timeout=5)

    assert [("failed", reason)] == rig.desk.ended
    assert not rig.windows.listed()
