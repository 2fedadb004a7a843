"""
Boundary calls: what they do to version, spans and windows, and in which order.
"""

from typing import Any

import pytest

import stepscope
from stepscope import boundary
from stepscope.complaints import Complaints
from stepscope.testing import FakeWindows, capture_spans
from tests.unit.stepscope.told import closes, order


def test_a_trainers_window_holds_its_whole_span() -> None:
    """
    Profiler, then span, then started; at the end the span first.
    """
    with capture_spans(selected={2}) as captured:
        for version in (1, 2, 3):
            with stepscope.step():
                stepscope.weights_published(version)

    (process,) = [span for span in captured.named("rl.step.process") if span.step == 2]
    assert ["open", "span_started rl.step.process", "started", "span_ended", "close"] == order(captured)
    assert [{"step": 2, "param_version": 1, "forced": False, "late": False}] == captured.agent.windows.of("open")
    assert [{"trace_id": process.trace_id, "span_id": process.span_id}] == captured.agent.windows.of("started")
    assert [(1, "boundary", "")] == closes(captured)
    assert [(1, 1), (2, 2), (3, 3)] == [
        (told["step"], told["version"]) for name, told in captured.agent.calls if name == "step_closed"
    ]


@pytest.mark.parametrize("pooled", [True, False])
def test_a_window_asked_for_on_a_pools_thread_may_be_closed_on_another(
    monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    """
    Whichever call asks for it there.
    """
    monkeypatch.setattr(boundary, "_pooled", lambda: pooled)
    asked: list[bool] = []
    with capture_spans(role="rollouter", selected={1}) as captured:
        windows = captured.agent.windows

        def opened(*, roaming: bool = False, **told: Any) -> bool:
            asked.append(roaming)
            return FakeWindows.open(windows, **told)

        monkeypatch.setattr(windows, "open", opened)
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        stepscope.weights_loaded(1)
        stepscope.start_profiling()
        stepscope.stop_profiling()

    assert [pooled] * 2 == asked


def test_the_version_changes_when_the_update_is_complete() -> None:
    """
    Not before, and not by leaving the block.
    """
    with capture_spans():
        assert (0, 1) == (stepscope.current_version(), stepscope.current_step())
        with stepscope.step():
            assert (0, 1) == (stepscope.current_version(), stepscope.current_step())
            stepscope.weights_published(1)
            assert (1, 2) == (stepscope.current_version(), stepscope.current_step())
        assert (1, 2) == (stepscope.current_version(), stepscope.current_step())


def test_a_replicas_window_lies_between_its_updates() -> None:
    """
    From ``weights_loaded(s-1)`` to ``weights_loading()``.
    """
    with capture_spans(role="rollouter", selected={2}) as captured:
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        stepscope.weights_loaded(1)
        with stepscope.span("rollout.generate"):
            pass
        stepscope.weights_loading()
        between = stepscope.current_step()
        stepscope.weights_loaded(2)
        stepscope.weights_loading()

    assert 2 == between
    assert [
        "open",
        "span_started rl.step.process",
        "started",
        "span_started rollout.generate",
        "span_ended",
        "span_ended",
        "close",
    ] == order(captured)
    assert [(1, "boundary", "")] == closes(captured)
    assert [(1, None), (2, None), (3, None)] == [
        (told["step"], told["version"]) for name, told in captured.agent.calls if name == "step_closed"
    ]


def test_a_replica_is_in_no_step_before_its_first_load() -> None:
    """
    ``init()`` alone opens nothing; the initial load and a resume are told like any other.
    """
    with capture_spans(role="rollouter", param_version=5, selected={6}) as captured:
        assert [] == captured.agent.windows.calls
        stepscope.weights_loaded(5)
        stepscope.weights_loaded(5)

        assert 1 == len(captured.agent.windows.of("open"))


def test_the_same_version_loaded_again_opens_no_second_window() -> None:
    """
    An update that was broken off, or told twice.
    """
    with capture_spans(role="rollouter", selected={1}) as captured:
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        stepscope.weights_loaded(0)
        stepscope.weights_loading()

    assert 1 == len(captured.agent.windows.of("open"))
    assert 2 == len(captured.named("rl.step.process"))


def test_a_load_without_its_pause_ends_the_window_as_incomplete() -> None:
    """
    The weights changed inside it.
    """
    with capture_spans(role="rollouter", selected={1}) as captured:
        stepscope.weights_loaded(0)
        stepscope.weights_loaded(1)
        stepscope.weights_loading()

    assert [(0, "boundary", "not_published")] == closes(captured)
    assert [0, 1] == [span.param_version for span in captured.named("rl.step.process")]


@pytest.mark.parametrize(
    ("expected", "profile", "selected"),
    [
        ([True], True, ()),
        ([], False, {1}),
        ([False], None, {1}),
        ([], None, {2}),
    ],
)
def test_profile_overrides_the_selection(expected: list[bool], profile: bool | None, selected: set[int]) -> None:
    """
    True forces, False forbids, None asks the selection.
    """
    with capture_spans(selected=selected) as captured, stepscope.step(profile=profile):
        stepscope.weights_published(1)

    assert expected == [told["forced"] for told in captured.agent.windows.of("open")]


def test_a_denied_window_leaves_the_step_as_it_is() -> None:
    """
    The span comes, nothing is started or closed.
    """
    with capture_spans(selected={1}, grant=False) as captured, stepscope.step():
        stepscope.weights_published(1)

    assert ["open"] == order(captured)
    assert 1 == len(captured.named("rl.step.process"))


def test_leaving_without_an_update_is_incomplete_and_keeps_the_version() -> None:
    """
    Entering again for the same step opens no second window, but has a span.
    """
    with capture_spans(selected={1}) as captured:
        with stepscope.step():
            pass
        with stepscope.step():
            stepscope.weights_published(1)

    assert [(0, "boundary", "not_published")] == closes(captured)
    assert 1 == len(captured.agent.windows.of("open"))
    assert [0, 0] == [span.param_version for span in captured.named("rl.step.process")]
    assert [1] == [told["step"] for name, told in captured.agent.calls if name == "step_closed"]


def test_an_exception_in_the_loop_closes_the_window_and_goes_on() -> None:
    """
    The process's span says what it was.
    """
    with capture_spans(selected={1}) as captured:
        with pytest.raises(ValueError, match="loss is nan"), stepscope.step():
            raise ValueError("loss is nan")

        assert [(0, "exception", "not_published")] == closes(captured)
        assert "error" == captured.named("rl.step.process")[0].status


@pytest.mark.parametrize(("expected", "interrupt"), [("exception", KeyboardInterrupt), ("process_exit", SystemExit)])
def test_an_interrupt_closes_the_window_too(expected: str, interrupt: type[BaseException]) -> None:
    """
    Ctrl-C, and SIGTERM as we turn it into an exit.
    """
    with capture_spans(selected={1}) as captured:
        with pytest.raises(interrupt), stepscope.step():
            raise interrupt

        assert [(0, expected, "not_published")] == closes(captured)


def test_an_update_told_twice_or_wrongly_never_raises(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A repeat and nonsense are ignored, a jump is taken as told; each is said once.
    """
    monkeypatch.setattr("stepscope.boundary.complaints", Complaints())
    versions: list[int] = []
    with capture_spans() as captured:
        for told in (1, 1, 1, "x", -1, None, 7, 7):
            stepscope.weights_published(told)  # type: ignore[arg-type]
            versions.append(stepscope.current_version())

    assert [1, 1, 1, 1, 1, 1, 7, 7] == versions
    assert [1, 2] == [span.step for span in captured.named("rl.step")]
    assert [
        "weights_published(1) was told before; it is ignored",
        "weights_published('x') is no version number; it is ignored",
        "weights_published(7) follows version 1; it is taken as told",
    ] == [record.getMessage() for record in caplog.records]


def test_a_repeat_inside_a_step_leaves_the_step_open() -> None:
    """
    The last version told again at the start of a step does not end it.
    """
    with capture_spans(param_version=3, selected={4}) as captured, stepscope.step():
        stepscope.weights_published(3)

        assert captured.agent.windows.recording
        stepscope.weights_published(4)

    assert [(3, "boundary", "")] == closes(captured)


def test_a_step_inside_a_step_is_ignored() -> None:
    """
    Leaving the inner block does not end the outer.
    """
    with capture_spans(selected={1}) as captured, stepscope.step():
        with stepscope.step():
            pass
        assert captured.agent.windows.recording
        stepscope.weights_published(1)

    assert 1 == len(captured.named("rl.step.process"))
    assert [(0, "boundary", "")] == closes(captured)


@pytest.mark.parametrize("name", ["validate", "checkpoint.save"])
def test_validation_in_a_window_makes_it_incomplete(name: str) -> None:
    """
    Only that window.
    """
    with capture_spans(selected={1, 2}) as captured:
        with stepscope.step():
            with stepscope.span(name, after_version=0):
                pass
            stepscope.weights_published(1)
        with stepscope.span(name, after_version=1):
            pass
        with stepscope.step():
            stepscope.weights_published(2)

    assert [(0, "boundary", "validation_inside"), (1, "boundary", "")] == closes(captured)


def test_validation_on_a_standing_replica_is_in_no_window() -> None:
    """
    Between ``weights_loading()`` and ``weights_loaded(v)`` nothing records.
    """
    with capture_spans(role="rollouter", selected={1, 2}) as captured:
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        with stepscope.span("validate", after_version=1):
            pass
        stepscope.weights_loaded(1)
        stepscope.weights_loading()

    assert [(0, "boundary", ""), (1, "boundary", "")] == closes(captured)
    assert (1, 2) == (captured.named("validate")[0].param_version, captured.named("validate")[0].step)


def test_a_step_beyond_the_last_never_records_and_is_partial() -> None:
    """
    Its spans and its root say so; the steps of the run do not.
    """
    with capture_spans(total_steps=1, selected={1, 2}) as captured:
        with stepscope.step(profile=True):
            stepscope.weights_published(1)
        with stepscope.span("validate", after_version=1):
            pass
        with stepscope.step(profile=True):
            pass

    assert [1] == [told["step"] for told in captured.agent.windows.of("open")]
    partial = {span.name for span in captured.spans if span.attributes.get("rl.step.partial")}
    assert {"validate", "rl.step.process", "rl.step"} == partial
    assert [False, True] == ["rl.step.partial" in span.attributes for span in captured.named("rl.step")]
    assert [2] == [told["step"] for name, told in captured.agent.calls if name == "step_closed" and told["partial"]]


def test_no_root_is_made_up_where_no_work_followed_the_last_update() -> None:
    """
    A run that ends with its last update has no partial step.
    """
    with capture_spans() as captured, stepscope.step():
        stepscope.weights_published(1)

    assert [1] == [span.step for span in captured.named("rl.step")]


def test_leaving_in_an_open_window_of_an_unknown_end_is_a_partial_step() -> None:
    """
    A rollouter whose trainer has finished.
    """
    with capture_spans(role="rollouter", selected={1}) as captured:
        stepscope.weights_loaded(0)

    assert [(0, "process_exit", "partial_step")] == closes(captured)
    assert captured.named("rl.step.process")[0].attributes["rl.step.partial"]


def test_leaving_too_early_is_incomplete_and_no_partial_step() -> None:
    """
    The run should have had this step.
    """
    with capture_spans(role="rollouter", selected={1}, total_steps=5) as captured:
        stepscope.weights_loaded(0)

    assert [(0, "process_exit", "process_exit")] == closes(captured)
