"""
What a step took, as numbers for a trainer's own dashboard.
"""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import stepscope
from stepscope import registration
from stepscope.steptimes import Timings
from stepscope.testing import capture_spans
from stepscope.version import Moment

ZERO = {
    "stepscope/bucket/idle_seconds": 0.0,
    "stepscope/bucket/overhead_seconds": 0.0,
    "stepscope/bucket/productive_seconds": 0.0,
    "stepscope/bucket/wasted_seconds": 0.0,
    "stepscope/stall_seconds": 0.0,
    "stepscope/stall/open_seconds": 0.0,
    "stepscope/stall/start_seconds": 0.0,
    "stepscope/stall/stop_seconds": 0.0,
    "stepscope/stall/export_seconds": 0.0,
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """
    Lets time pass for spans; none passes by itself.
    """
    now = [1_000_000_000_000_000_000]
    monkeypatch.setattr("opentelemetry.sdk.trace.time_ns", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += int(seconds * 1e9)

    return passes


def test_a_step_says_what_it_took(clock: Callable[[float], None]) -> None:
    """
    Its seconds, those of its spans by kind of time, and those that profiling kept it waiting; each step its own.
    """
    with capture_spans(param_version=4, selected={5}) as captured:
        assert {} == stepscope.timings()
        for version in (5, 6):
            with stepscope.step():
                with stepscope.span("umbrella"):
                    with stepscope.span("wait", wait_for="samples"):
                        clock(0.5)
                    for _ in range(2):
                        with stepscope.span("work", bucket="productive"):
                            clock(version)
                captured.agent.stall = {"open": 0.25, "start": 0.5, "stop": 1.0, "export": 2.0} if version == 5 else {}
                stepscope.weights_published(version)
            if version == 5:
                first = stepscope.timings()
        second = stepscope.timings()

    assert first == {
        **ZERO,
        "stepscope/step": 5,
        "stepscope/version": 4,
        "stepscope/seconds": 10.5,
        "stepscope/bucket/idle_seconds": 0.5,
        "stepscope/bucket/productive_seconds": 10.0,
        "stepscope/stall_seconds": 3.75,
        "stepscope/stall/open_seconds": 0.25,
        "stepscope/stall/start_seconds": 0.5,
        "stepscope/stall/stop_seconds": 1.0,
        "stepscope/stall/export_seconds": 2.0,
    }
    assert second == {
        **ZERO,
        "stepscope/step": 6,
        "stepscope/version": 5,
        "stepscope/seconds": 12.5,
        "stepscope/bucket/idle_seconds": 0.5,
        "stepscope/bucket/productive_seconds": 12.0,
    }


def test_what_comes_between_two_steps_belongs_to_the_next(clock: Callable[[float], None]) -> None:
    """
    As a checkpoint does; and a bucket that nobody knows is in no sum.
    """
    with capture_spans():
        for version in (1, 2):
            with stepscope.step():
                clock(1)
                stepscope.weights_published(version)
            with stepscope.span("checkpoint.save", bucket="overhead", after_version=version):
                clock(3)
            with stepscope.span("foreign", bucket="else"):
                clock(5)
        found = stepscope.timings()

    assert found == {
        **ZERO,
        "stepscope/step": 2,
        "stepscope/version": 1,
        "stepscope/seconds": 1.0,
        "stepscope/bucket/overhead_seconds": 3.0,
    }


def test_a_replica_has_timings_too(clock: Callable[[float], None]) -> None:
    """
    From one load of weights to the next, in coroutines as well.
    """

    async def run() -> None:
        await stepscope.aweights_loaded(0)
        with stepscope.span("generate", bucket="productive"):
            clock(2)
        await stepscope.aweights_loading()

    with capture_spans(role="rollouter"):
        asyncio.run(run())
        found = stepscope.timings()

    assert found == {
        **ZERO,
        "stepscope/step": 1,
        "stepscope/version": 0,
        "stepscope/seconds": 2.0,
        "stepscope/bucket/productive_seconds": 2.0,
    }


def test_a_step_that_did_not_complete_has_none() -> None:
    """
    Neither one that an exception ended nor one after the last update.
    """
    with capture_spans(total_steps=0):
        with pytest.raises(RuntimeError, match="broken"), stepscope.step():
            raise RuntimeError("broken")
        with stepscope.step():
            stepscope.weights_published(1)

        assert {} == stepscope.timings()


def test_what_it_returns_is_the_callers_own() -> None:
    """
    Loggers add to it.
    """
    with capture_spans():
        with stepscope.step():
            stepscope.weights_published(1)
        stepscope.timings().clear()

        assert 1 == stepscope.timings()["stepscope/step"]


def test_while_stepscope_is_off_there_are_none() -> None:
    """
    An empty dictionary can be logged.
    """
    assert {} == stepscope.timings()


def test_spans_of_many_threads_are_all_summed() -> None:
    """
    None is lost where they end at once.
    """
    timings = Timings(stall=dict)
    barrier = threading.Barrier(8)
    span: Any = SimpleNamespace(
        name="work", attributes={"rl.bucket": "productive"}, start_time=0, end_time=1_000_000_000
    )

    def work() -> None:
        barrier.wait(30)
        for _ in range(200):
            timings.spent(span)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    timings.completed(Moment(param_version=0))

    assert 1600.0 == timings.last()["stepscope/bucket/productive_seconds"]


def test_trouble_with_the_windows_is_said_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    """
    The update that ends the step is what counts.
    """

    def fail() -> dict[str, float]:
        raise RuntimeError("no stall here")

    with capture_spans():
        session = registration.session
        assert session is not None
        session.timings._stall = fail
        session.timings.completed(Moment(param_version=0))

    assert "no stall here" in caplog.text
