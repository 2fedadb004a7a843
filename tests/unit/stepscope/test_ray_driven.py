"""
A process without a loop of its own takes part in the steps of those who call it.
"""

import asyncio
import threading
from typing import Any

import pytest

import stepscope
from stepscope import driven, registration
from stepscope.driven import Part
from stepscope.integrations import ray
from stepscope.received import Received
from stepscope.testing import capture_spans
from tests.unit.stepscope.driven_worker import Worker, carried, carried_after_publishing, parts, told, windows

WAIT = 30.0
"""Seconds that nothing here takes."""


def test_calls_tell_the_step() -> None:
    """
    The process enters the caller's step with the first call from it, and goes on to the next with the first from that.
    """
    calls = [carried(version) for version in (0, 0, 1, 4)]
    worker = Worker()
    with capture_spans(role="worker", selected={1, 2, 5}) as captured:
        assert [1, 1, 2, 5] == [told(worker, "work", carrier) for carrier in calls]
        opened, closed = windows(captured)

    assert [1, 1, 2, 5] == [span.step for span in captured.named("work")]
    assert [1, 2, 5] == [span.step for span in parts(captured)]
    assert [(1, 0), (2, 1), (5, 4)] == opened
    assert [(0, "boundary", ""), (1, "boundary", "")] == closed


def test_spans_of_a_call_lie_below_the_caller_and_in_its_step() -> None:
    """
    Trace, parent and tags say the same.
    """
    with capture_spans(param_version=3) as trainer, stepscope.step(), stepscope.span("caller"):
        carrier = driven.carrier()
    [caller] = trainer.named("caller")

    with capture_spans(role="worker") as captured:
        told(Worker(), "work", carrier)

    [work] = captured.named("work")
    assert (caller.trace_id, caller.span_id) == (work.trace_id, work.parent_span_id)
    assert (4, 3) == (work.step, work.param_version)


def test_it_never_goes_back() -> None:
    """
    A call that comes from an earlier step, late, is answered in the step that the process is in.
    """
    late, now = carried(0), carried(1)
    with capture_spans(role="worker", selected={1, 2}) as captured:
        assert [2, 2] == [told(Worker(), "work", carrier) for carrier in (now, late)]
        opened, _ = windows(captured)

    assert [(2, 1)] == opened


def test_a_call_from_between_two_steps_ends_the_one_and_begins_none() -> None:
    """
    Its caller has completed that step; what is done in it belongs to the next.
    """
    first, between = carried(0), carried_after_publishing(1)
    with capture_spans(role="worker", selected={1, 2}) as captured:
        assert [1, 2] == [told(Worker(), "work", carrier) for carrier in (first, between)]
        opened, closed = windows(captured)

    assert ([(1, 0)], [(0, "boundary", "")]) == (opened, closed)
    assert [None] == [span.attributes.get("rl.step.partial") for span in parts(captured)]


def test_a_shared_window_goes_on_with_the_step_and_ends_with_the_last() -> None:
    """
    Told the next step it is extended; told that the step is over and none has begun, it is closed.
    """
    calls = [carried(0), carried(1), carried_after_publishing(2)]
    with capture_spans(role="worker", selected={1, 2, 3}) as captured:
        captured.agent.windows.continuous = True
        for carrier in calls:
            told(Worker(), "work", carrier)
        opened, closed = windows(captured)
        extended = [call["step"] for call in captured.agent.windows.of("extend")]

    assert ([(1, 0)], [2], [(1, "boundary", "")]) == (opened, extended, closed)


def test_a_process_that_ends_in_a_step_it_was_told_was_in_no_partial_one() -> None:
    """
    As the process of a task does: its part of the step is over, and its recording says that it ended with the process.
    """
    with capture_spans(role="task", selected={1}) as captured:
        told(Worker(), "work", carried(0))
    _, closed = windows(captured)

    assert [(0, "process_exit", "process_exit")] == closed
    assert [None] == [span.attributes.get("rl.step.partial") for span in parts(captured)]
    assert [False] == [call["partial"] for name, call in captured.agent.calls if name == "step_closed"]


def test_a_process_with_boundary_calls_of_its_own_is_told_nothing() -> None:
    """
    Whose child a call is, it takes; the step is its own.
    """
    carrier = carried(7)
    with capture_spans(role="rollouter", selected={1, 2, 8}) as captured:
        stepscope.weights_loaded(0)
        told(Worker(), "work", carrier)
        told(Worker(), "load", carrier)
        told(Worker(), "send", carrier)
        stepscope.weights_loading()
        opened, closed = windows(captured)

    assert ([(1, 0)], [(0, "boundary", "")]) == (opened, closed)
    assert [1] == [span.step for span in captured.named("work")]


def test_a_loop_that_begins_in_a_call_takes_its_step_over() -> None:
    """
    A trainer that is started by a call was told its first step; from then on it says it itself.
    """

    @ray.traced
    class Trainer:
        def train(self) -> None:
            for version in (1, 2):
                with stepscope.step():
                    with stepscope.span("work"):
                        pass
                    stepscope.weights_published(version)

    with capture_spans(selected={1, 2}) as captured:
        told(Trainer(), "train", carried(0))
        opened, closed = windows(captured)

    assert [(1, 0), (2, 1)] == opened
    assert [(0, "boundary", ""), (1, "boundary", "")] == closed
    assert [1, 2] == [span.step for span in parts(captured)]


def test_a_replica_that_a_call_has_put_into_its_step_says_the_same() -> None:
    """
    ``weights_loaded`` in such a call is no second beginning.
    """

    @ray.traced
    class Rollouter:
        def load(self, version: int) -> None:
            stepscope.weights_loading()
            stepscope.weights_loaded(version)

    with capture_spans(role="rollouter", selected={1, 2}) as captured:
        told(Worker(), "work", carried(0))
        Rollouter().load(1)
        opened, closed = windows(captured)

    assert ([(1, 0), (2, 1)], [(0, "boundary", "")]) == (opened, closed)


def test_who_does_not_know_its_place_tells_nobody() -> None:
    """
    A process before its first step, and a driver that only registers, pass on whose child a call is and no version.
    """
    with capture_spans(role="worker"), stepscope.span("caller"):
        assert driven.VERSION not in driven.carrier()
        told(Worker(), "work", carried(3))
        assert {"param_version": "3", "inside": "1"}.items() <= driven.carrier().items()
    assert {} == driven.carrier()


def test_coroutines_are_told_too() -> None:
    """
    Several at once: one of them moves the process, and all of them are in the step.
    """
    calls = [carried(version) for version in (0, 0, 0, 1, 1)]
    worker = Worker()

    async def run() -> list[int]:
        return await asyncio.gather(*(told(worker, "awaited", carrier) for carrier in calls[:3])) + [
            await told(worker, "awaited", carrier) for carrier in calls[3:]
        ]

    with capture_spans(role="worker", selected={1, 2}) as captured:
        assert [1, 1, 1, 2, 2] == asyncio.run(run())
        opened, closed = windows(captured)

    assert ([(1, 0), (2, 1)], [(0, "boundary", "")]) == (opened, closed)


def test_threads_that_are_told_at_once_are_all_in_the_step() -> None:
    """
    One of them moves the process, and the others wait for it.
    """
    carrier = carried(1)
    barrier = threading.Barrier(8)
    steps: list[int] = []

    def call() -> None:
        barrier.wait(WAIT)
        steps.append(told(Worker(), "work", carrier))

    with capture_spans(role="worker", selected={2}) as captured:
        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        opened, _ = windows(captured)

    assert [2] * 8 == steps
    assert [(2, 1)] == opened
    assert 1 == len(parts(captured))


def test_tasks_of_several_event_loops_wait_for_who_moves_the_process() -> None:
    """
    An actor with concurrency groups has a loop for each; all of them go on when it is moved, in the step.
    """
    carrier = carried(1)
    opening, waiting, opened_at_last = threading.Event(), threading.Event(), threading.Event()
    steps: list[int] = []

    async def call() -> None:
        steps.append(await told(Worker(), "awaited", carrier))

    async def late() -> None:
        task = asyncio.ensure_future(call())
        # Until it waits for the other loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.set()
        # Nothing else wakes this loop.
        await asyncio.wait_for(task, WAIT)

    with capture_spans(role="worker", selected={2}) as captured:
        engine = captured.agent.windows
        aopen = engine.aopen

        async def slow(**asked: Any) -> bool:
            opening.set()
            await asyncio.to_thread(opened_at_last.wait, WAIT)
            return await aopen(**asked)

        engine.aopen = slow  # type: ignore[method-assign]  # an engine whose profiler takes its time
        first = threading.Thread(target=lambda: asyncio.run(call()))
        others = [threading.Thread(target=lambda: asyncio.run(late())) for _ in range(2)]
        first.start()
        assert opening.wait(WAIT)
        for thread in others:
            thread.start()
        assert waiting.wait(WAIT)
        assert [] == steps
        opened_at_last.set()
        for thread in (first, *others):
            thread.join(WAIT)
        opened, _ = windows(captured)

    assert [2, 2, 2] == steps
    assert [(2, 1)] == opened


def test_a_task_waits_for_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Its patience is that of a thread; then it goes on unmoved, and so does one that was cancelled.
    """
    monkeypatch.setattr(driven, "PATIENCE", 0.01)
    carrier = carried(1)
    with capture_spans(role="worker"):
        session = registration.session
        assert session is not None
        assert session.driven._turn.take(0.0)

        assert 1 == asyncio.run(told(Worker(), "awaited", carrier))
        session.driven._turn.give()
        assert 2 == asyncio.run(told(Worker(), "awaited", carrier))
    assert [] == session.driven._turn._waiters


def test_init_inside_a_call_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A task registers in its body: what the call told holds for the process that has just registered.
    """
    carrier = carried(2)
    with Received(carrier, Part.NONE), capture_spans(role="task", selected={3}) as captured:
        session = registration.session
        assert session is not None
        driven.catch_up(session.driven)
        with stepscope.span("work"):
            pass
        opened, _ = windows(captured)

    assert [(3, 2)] == opened
    assert [3] == [span.step for span in captured.named("work")]


@pytest.mark.parametrize(
    "carrier",
    [
        {"traceparent": "nonsense", "param_version": "x"},
        {"param_version": "-1", "inside": "1"},
        {"param_version": str(2**70), "inside": "1"},
        {"param_version": 3},
        {"traceparent": 3},
    ],
)
def test_nonsense_tells_nothing(carrier: Any) -> None:
    """
    And harms nobody.
    """
    with capture_spans(role="worker", selected={1, 4}) as captured:
        assert 1 == told(Worker(), "work", carrier)
        opened, _ = windows(captured)

    assert [] == opened
