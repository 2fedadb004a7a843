"""
The public calls: profiling by hand, the async forms, and what they are without `init()`, or when something breaks.
"""

import asyncio
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

import stepscope
from stepscope.testing import FakeWindows, capture_spans
from tests.unit.stepscope.told import closes, order


def test_profiling_by_hand_opens_late_once_and_stops() -> None:
    """
    Both calls are idempotent; a step has one window.
    """
    with capture_spans() as captured, stepscope.step():
        assert "recording" == stepscope.start_profiling()["state"]
        assert "recording" == stepscope.start_profiling()["state"]
        stepscope.stop_profiling()
        stepscope.stop_profiling()
        stepscope.start_profiling()
        stepscope.weights_published(1)

    process = captured.named("rl.step.process")[0]
    assert [{"step": 1, "param_version": 0, "forced": True, "late": True}] == captured.agent.windows.of("open")
    assert [process.span_id] == [told["span_id"] for told in captured.agent.windows.of("started")]
    assert [(0, "stopped_by_user", "opened_late")] == closes(captured)


def test_a_late_window_ends_at_the_boundary_all_the_same() -> None:
    """
    With its flaw.
    """

    async def loop() -> None:
        async with stepscope.step():
            await stepscope.astart_profiling()
            await stepscope.aweights_published(1)

    with capture_spans() as captured:
        asyncio.run(loop())

    assert [(0, "boundary", "opened_late")] == closes(captured)


def test_stopping_a_selected_window_says_so() -> None:
    """
    It is kept, and not whole.
    """
    with capture_spans(selected={1}) as captured, stepscope.step():
        stepscope.stop_profiling()
        stepscope.weights_published(1)

    assert [(0, "stopped_by_user", "stopped")] == closes(captured)


def test_the_async_forms_do_the_same_in_the_same_order() -> None:
    """
    An engine's profiler is awaited.
    """

    async def trainer() -> None:
        async with stepscope.step():
            await stepscope.aweights_published(1)

    async def replica() -> None:
        await stepscope.aweights_loaded(1)
        await stepscope.aweights_loading()

    with capture_spans(selected={1, 2}) as captured:
        asyncio.run(trainer())
        asyncio.run(replica())

    one = ["open", "span_started rl.step.process", "started", "span_ended", "close"]
    assert one + one == order(captured)


def test_a_cancelled_task_closes_its_window() -> None:
    """
    And stays cancelled.
    """

    async def run() -> None:
        inside = asyncio.Event()

        async def loop() -> None:
            async with stepscope.step():
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(loop())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with capture_spans(selected={1}) as captured:
        asyncio.run(run())

        assert [(0, "exception", "not_published")] == closes(captured)


def test_a_task_cancelled_while_its_window_opens_leaves_none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The block is never entered, so nobody else would close it.
    """

    async def run(windows: FakeWindows) -> None:
        opening = asyncio.Event()

        async def slow(*, step: int, param_version: int, **_: bool) -> bool:
            windows.open(step=step, param_version=param_version)
            opening.set()
            await asyncio.Event().wait()
            return True

        monkeypatch.setattr(windows, "aopen", slow)

        async def loop() -> None:
            async with stepscope.step():
                raise AssertionError("was entered")

        task = asyncio.create_task(loop())
        await asyncio.wait({task, asyncio.create_task(opening.wait())}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with capture_spans(selected={1}) as captured:
        asyncio.run(run(captured.agent.windows))

        assert [(0, "exception", "not_published")] == closes(captured)
        assert [] == captured.named("rl.step.process")


def test_a_cancelled_stop_keeps_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The weights are out, whatever became of the recording.
    """

    async def run(windows: FakeWindows) -> None:
        stopping = asyncio.Event()

        async def slow(*, version: int, reason: str = "", incomplete: str = "") -> None:
            stopping.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(windows, "aclose", slow)

        async def loop() -> None:
            async with stepscope.step():
                await stepscope.aweights_published(1)

        task = asyncio.create_task(loop())
        await stopping.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with capture_spans(selected={1}) as captured:
        asyncio.run(run(captured.agent.windows))

        assert 1 == stepscope.current_version()
        assert 1 == len(captured.named("rl.step"))


def _fail(*_: object, **__: object) -> bool:
    raise RuntimeError("broken")


@pytest.mark.parametrize("broken", ["open", "started", "close"])
def test_a_broken_profiler_never_reaches_the_loop(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """
    Whatever it raises, the step goes on and the version counts.
    """
    with capture_spans(selected={1}) as captured:
        monkeypatch.setattr(captured.agent.windows, broken, _fail)
        with stepscope.step():
            stepscope.weights_published(1)
        monkeypatch.undo()

        assert 1 == stepscope.current_version()


@pytest.mark.parametrize("broken", ["selected", "entered", "step_closed", "samples", "register_profiler"])
def test_a_broken_agent_never_reaches_the_loop(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """
    Every entry point is guarded.
    """
    with capture_spans() as captured:
        monkeypatch.setattr(captured.agent, broken, _fail)
        stepscope.register_profiler(object())
        with stepscope.step():
            stepscope.consumed(mini_batch=0, rows=[("a", 0, 0, None)])
            stepscope.weights_published(1)
        stepscope.weights_loaded(1)
        stepscope.weights_loading()
        monkeypatch.undo()


def test_consumed_samples_reach_the_table() -> None:
    """
    With ids of their rollout spans where they are known; an unknown version stays unknown.
    """
    with capture_spans() as captured:
        with stepscope.span("rollout.generate") as span:
            carrier = span.carrier()
        stepscope.consumed(mini_batch=2, rows=[("a", 0, 1, carrier), ("b", None, None, None)])

    rollout = captured.named("rollout.generate")[0]
    assert [("a", 0, 1, rollout.trace_id, rollout.span_id), ("b", None, None, None, None)] == captured.agent.rows
    assert ("samples", {"step": 1, "mini_batch": 2, "param_version": 0}) in captured.agent.calls


@pytest.mark.parametrize("mini_batch", [2.0, Fraction(2)])
def test_a_mini_batch_is_counted_by_any_kind_of_number(mini_batch: Any) -> None:
    """
    As the versions of its rows are: a kind of its own could not be sent.
    """
    with capture_spans() as captured:
        stepscope.consumed(mini_batch=mini_batch, rows=[("a", 0, 1, None)])

    told = dict(captured.agent.calls)["samples"]["mini_batch"]
    assert (2, int) == (told, type(told))


def test_without_init_everything_does_nothing() -> None:
    """
    The same program runs with stepscope off.
    """
    calls: list[Callable[[], object]] = [
        stepscope.shutdown,
        stepscope.weights_loading,
        stepscope.current_step,
        lambda: stepscope.weights_published(1),
        lambda: stepscope.weights_loaded(1),
        lambda: stepscope.consumed(mini_batch=0, rows=[]),
        lambda: stepscope.register_profiler(object()),
    ]
    for call in calls:
        assert not call()
    with stepscope.step(), stepscope.span("work", attributes={"a": 1}, request=True) as span:
        span.set("b", 2)
        span.end()
        with stepscope.attached({"traceparent": "x"}), stepscope.tracer().start_as_current_span("traced"):
            pass

    assert {} == stepscope.inject() == span.carrier()
    assert not span.context.is_valid
    assert "off" == stepscope.start_profiling()["reason"] == stepscope.stop_profiling()["reason"]
    assert stepscope.link({"traceparent": f"00-{'1' * 32}-{'1' * 16}-01"}) is None


def test_without_init_the_async_forms_do_nothing() -> None:
    """
    The same.
    """

    async def run() -> None:
        async with stepscope.step():
            await stepscope.aweights_published(1)
        await stepscope.aweights_loaded(1)
        await stepscope.aweights_loading()
        assert "off" == (await stepscope.astart_profiling())["reason"] == (await stepscope.astop_profiling())["reason"]

    asyncio.run(run())


def test_everything_public_is_there() -> None:
    """
    And nothing is missing from ``__all__``.
    """
    assert all(getattr(stepscope, name) is not None for name in stepscope.__all__)
    assert sorted(stepscope.__all__) == stepscope.__all__


def test_a_disabled_opentelemetry_sdk_leaves_windows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No spans then, but the boundaries hold; a window points at the step's root.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with capture_spans(selected={1}) as captured:
        with stepscope.step():
            with stepscope.span("work") as span:
                span.set("a", 1)
            stepscope.weights_published(1)

        assert 1 == stepscope.current_version()

    assert [] == captured.spans
    assert ["open", "started", "close"] == order(captured)
