"""
Consecutive selected steps that share one window, and a replica's profiler that stops after the update.
"""

import asyncio
from pathlib import Path

import pytest

import stepscope
from stepscope import wire
from stepscope.testing import Captured, capture_spans
from tests.unit.stepscope.desk import Rig, elsewhere
from tests.unit.stepscope.fake_profiler import FakeEngine
from tests.unit.stepscope.fake_sidecar import until
from tests.unit.stepscope.told import closes, order


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """
    Windows that may go on into the next step, with a profiler that any thread may stop.
    """
    rig.desk.continuous = True
    return rig


@pytest.fixture
def bound(bound: Rig) -> Rig:
    """
    The same with a profiler that belongs to its thread.
    """
    bound.desk.continuous = True
    return bound


def train(captured: Captured, *versions: int) -> None:
    """
    A trainer's steps that make ``versions``, in one-window-for-many mode.
    """
    captured.agent.windows.continuous = True
    for version in versions:
        with stepscope.step():
            stepscope.weights_published(version)


def told(captured: Captured) -> list[tuple[str, object]]:
    """
    The steps that windows were opened for and went on into, and their ends.
    """
    return [
        (name, detail.get("step"))
        for name, detail in captured.agent.windows.calls
        if name in {"open", "extend", "close", "linger", "resume"}
    ]


def test_consecutive_selected_steps_share_a_window() -> None:
    """
    [1, 2, 5] makes {1, 2} and {5}.
    """
    with capture_spans(selected={1, 2, 5}) as captured:
        train(captured, 1, 2, 3, 4, 5, 6)

    assert [("open", 1), ("extend", 2), ("close", None), ("open", 5), ("close", None)] == told(captured)
    assert [(1, "boundary", ""), (4, "boundary", "")] == closes(captured)


def test_each_process_span_of_a_shared_window_is_mirrored() -> None:
    """
    And the window is told which spans it has gone on into.
    """
    with capture_spans(selected={1, 2}) as captured:
        train(captured, 1, 2, 3)

    spans = {span.step: span for span in captured.named("rl.step.process")}
    mirrored = [detail["span_id"] for detail in captured.agent.windows.of("span_started")]
    assert [int(spans[step].span_id, 16) for step in (1, 2)] == mirrored
    assert [{"step": 2, "trace_id": spans[2].trace_id, "span_id": spans[2].span_id}] == captured.agent.windows.of(
        "extend"
    )


def test_without_the_mode_each_step_has_its_own_window() -> None:
    """
    The default.
    """
    with capture_spans(selected={1, 2}) as captured:
        for version in (1, 2, 3):
            with stepscope.step():
                stepscope.weights_published(version)

    assert [("open", 1), ("close", None), ("open", 2), ("close", None)] == told(captured)


def test_a_replicas_steps_share_a_window_too() -> None:
    """
    The update between them is in it.
    """
    with capture_spans(role="rollouter", selected={2, 3}) as captured:
        captured.agent.windows.continuous = True
        for version in (0, 1, 2, 3):
            stepscope.weights_loaded(version)
            stepscope.weights_loading()

    assert [("open", 2), ("extend", 3), ("close", None)] == told(captured)
    assert [(2, "boundary", "")] == closes(captured)


def test_a_step_that_is_left_out_ends_a_shared_window_late() -> None:
    """
    ``profile=False`` is heard after the boundary: what lay between is in the recording, and it says so.
    """
    with capture_spans(selected={1, 2}) as captured:
        train(captured, 1)
        with stepscope.step(profile=False):
            stepscope.weights_published(2)

    assert [("open", 1), ("close", None)] == told(captured)
    assert [(1, "step_not_selected", "closed_late")] == closes(captured)


def test_a_jump_of_the_version_ends_a_shared_window() -> None:
    """
    Steps that are not consecutive don't share.
    """
    with capture_spans(selected={1, 2, 6}) as captured:
        captured.agent.windows.continuous = True
        with stepscope.step():
            stepscope.weights_published(5)
        with stepscope.step():
            stepscope.weights_published(6)
    with capture_spans(role="rollouter", selected={1, 2, 6}) as replica:
        replica.agent.windows.continuous = True
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        stepscope.weights_loaded(5)

    assert [("open", 1), ("close", None), ("open", 6), ("close", None)] == told(captured)
    assert [("open", 1), ("close", None), ("open", 6), ("close", None)] == told(replica)
    assert [(0, "boundary", ""), (5, "boundary", "")] == closes(captured)
    assert (5, "step_not_selected", "closed_late") == closes(replica)[0]


def test_a_shared_window_does_not_wait_for_a_step_that_never_comes() -> None:
    """
    What follows the last update is no step of the run.
    """
    with capture_spans(selected={2, 3}, total_steps=2) as captured:
        train(captured, 1, 2)

        assert [(1, "boundary", "")] == closes(captured)


def test_leaving_between_two_steps_ends_a_shared_window() -> None:
    """
    It holds what came after its last step's boundary.
    """
    with capture_spans(selected={1, 2}) as captured:
        train(captured, 1)

    assert [(1, "process_exit", "closed_late")] == closes(captured)


def test_a_window_that_ended_early_is_not_gone_on_with() -> None:
    """
    The next step asks for its own.
    """
    with capture_spans(selected={1, 2, 3}) as captured:
        train(captured, 1)
        stepscope.stop_profiling()
        train(captured, 2, 3)

    assert [("open", 1), ("close", None), ("open", 2), ("extend", 3), ("close", None)] == told(captured)


def test_a_failed_load_goes_on_with_the_same_step() -> None:
    """
    The replica resumes with the weights it had: step and window stay.
    """
    with capture_spans(role="rollouter", selected={1, 2}) as captured:
        captured.agent.windows.continuous = True
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        stepscope.weights_loaded(1)
        stepscope.weights_loading()

    assert [("open", 1), ("extend", 1), ("extend", 2), ("close", None)] == told(captured)


def test_a_shared_window_says_which_steps_it_covers(rig: Rig) -> None:
    """
    To the sidecar at once, to one that comes back, and in its record.
    """
    rig.open(5)
    steps = [step for step in (5, 6, 7) if rig.windows.carries(step)]
    rig.windows.extend(step=6, trace_id="3" * 32, span_id="4" * 16)
    rig.windows.extend(step=6, trace_id="5" * 32, span_id="6" * 16)
    listed = rig.windows.listed()[0].last_step
    rig.windows.close(version=7)

    assert [5, 6] == steps
    assert wire.Continued(window="w1", step=6, trace_id="3" * 32, span_id="4" * 16) == rig.desk.told[1]
    assert 3 == len(rig.desk.told)
    assert (6, 6, "6") == (listed, rig.desk.closed[0].last_step, rig.desk.closed[0].metadata["stepscope.last_step"])


def test_a_window_that_is_to_end_is_not_gone_on_with(bound: Rig) -> None:
    """
    Neither one that was stopped, nor one whose boundary comes on another thread, nor one that was granted otherwise.
    """
    bound.open(5)
    there: list[bool] = []
    elsewhere(lambda: there.append(bound.windows.carries(6)))
    here = bound.windows.carries(6)
    bound.windows.stop("w1", "stopped_by_user")
    stopped = bound.windows.carries(6)
    bound.windows.close(version=5)
    bound.desk.continuous = False
    bound.open(6)

    assert ([False], True, False, False) == (there, here, stopped, bound.windows.carries(7))
    assert ("stopped_by_user", "stopped") == (bound.desk.closed[0].reason, bound.desk.closed[0].incomplete)


def test_by_default_a_replicas_profiler_stops_before_the_update() -> None:
    """
    The update waits for it, and that is told.
    """
    ticks = iter(range(10**9, 10**12, 10**9))
    with capture_spans(role="rollouter", selected={1}, clock=lambda: next(ticks)) as captured:
        stepscope.weights_loaded(0)
        opening = captured.agent.update_delay
        stepscope.weights_loading()
        stepscope.weights_loaded(1)

    assert [("open", 1), ("close", None)] == told(captured)
    assert (1.0, 2.0) == (opening, captured.agent.update_delay)


def test_a_trainers_windows_keep_no_update_waiting() -> None:
    """
    Its window closes when the update is complete.
    """
    with capture_spans(selected={1, 2}) as captured:
        for version in (1, 2):
            with stepscope.step():
                stepscope.weights_published(version)

    assert 0.0 == captured.agent.update_delay


def test_a_replicas_profiler_can_stop_after_the_update() -> None:
    """
    Its window is over at the pause all the same.
    """
    with capture_spans(role="rollouter", selected={1}, stop_after=True) as captured:
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        before = captured.agent.windows.recording
        stepscope.weights_loaded(1)

    assert [("open", 1), ("linger", None), ("resume", None)] == told(captured)
    calls = order(captured)
    assert ["linger", "span_started rl.step.process", "resume"] == calls[calls.index("linger") :][:3]
    assert before


def test_the_next_window_waits_for_a_profiler_that_lingers() -> None:
    """
    Two cannot run at once: it stops in the update after all.
    """
    with capture_spans(role="rollouter", selected={1, 2}, stop_after=True) as captured:
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        stepscope.weights_loaded(1)

    assert [("open", 1), ("linger", None), ("close", None), ("open", 2)] == told(captured)[:4]


def test_what_lingers_stops_at_the_first_span_after_the_update(bound: Rig) -> None:
    """
    Spans of the update neither stop it nor get onto its timeline, and its end is the pause.
    """
    bound.open(5)
    bound.windows.span_started(0xA, "rollout.generate")
    lingers = bound.windows.linger(version=5)
    bound.windows.span_started(0xB, "weights.load")
    bound.windows.span_ended(0xB)
    running = bound.windows.lingering
    bound.windows.resume()
    bound.windows.span_started(0xC, "rollout.generate")
    closed = bound.desk.closed[0]

    mark = "rollout.generate #000000000000000a"
    assert (True, True, False) == (lingers, running, bound.windows.recording)
    assert ["start", f"enter {mark}", f"exit {mark}", "stop"] == bound.profiler.calls
    assert (["000000000000000a"], "boundary", "closed_late", 5, 1000) == (
        closed.mirrored,
        closed.reason,
        closed.incomplete,
        closed.version_at_close,
        closed.closed_unix_ns,
    )


def test_what_lingers_without_work_stops_in_a_moment(rig: Rig) -> None:
    """
    A replica without requests begins no span.
    """
    rig.open(5)
    rig.windows.linger(version=5)
    rig.windows.resume()
    rig.seconds = 10.0
    rig.windows.resume()
    rig.seconds = 20.0
    # Meant for another window; it has them looked at.
    rig.windows.stop("w7", "stopped_by_user")

    until(lambda: bool(rig.desk.closed))
    assert "boundary" == rig.desk.closed[0].reason


def test_a_cap_ends_what_lingers_within_the_update(rig: Rig) -> None:
    """
    An update that hangs does not leave a profiler on.
    """
    rig.desk.caps = wire.Caps(seconds=5.0)
    rig.open(5)
    rig.windows.linger(version=5)
    rig.seconds = 6.0
    # Meant for another window; it has them looked at.
    rig.windows.stop("w7", "stopped_by_user")

    until(lambda: bool(rig.desk.closed))
    assert ("boundary", "closed_late") == (rig.desk.closed[0].reason, rig.desk.closed[0].incomplete)


def test_nothing_lingers_that_has_to_end_now(bound: Rig) -> None:
    """
    What another thread opened, what was stopped, and nothing at all.
    """
    nothing = bound.windows.linger(version=5)
    bound.open(5)
    there: list[bool] = []
    elsewhere(lambda: there.append(bound.windows.linger(version=5)))
    bound.windows.stop("w1", "stopped_by_user")
    stopped = bound.windows.linger(version=5)
    bound.windows.close(version=5)

    assert (False, [False], False) == (nothing, there, stopped)


def test_an_engines_profiler_is_not_stopped_at_a_span(tmp_path: Path) -> None:
    """
    Its stop is a coroutine: the watchdog puts it onto its loop, and the recording is kept.
    """
    engine = FakeEngine()
    rig = Rig(tmp_path, engine)

    async def work() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id="1" * 32, span_id="2" * 16)
        rig.windows.stop("w1", "stopped_by_user")
        rig.windows.span_started(0xA, "rollout.generate")
        rig.windows.span_ended(0xA)
        async with asyncio.timeout(10):
            while rig.windows.recording or not rig.desk.told[1:]:
                await asyncio.to_thread(lambda: None)

    asyncio.run(work())
    rig.windows.end(version=5, timeout=5)

    assert ["start", "stop"] == engine.calls
    assert [("stopped_by_user", "stopped")] == [(closed.reason, closed.incomplete) for closed in rig.desk.closed]
