"""
The tree of spans: whose children they are, in which step's trace.
"""

import threading

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider

import stepscope
from stepscope import ids
from stepscope.testing import Captured, capture_spans
from tests.unit.stepscope.told import only


def test_spans_are_below_each_other_and_below_the_process(captured: Captured) -> None:
    """
    root > process > phase > part, in the step's trace, with the derived ids.
    """
    with stepscope.step():
        with stepscope.span("phase"), stepscope.span("part"):
            pass
        stepscope.weights_published(1)

    root, process, phase, part = (only(captured, name) for name in ("rl.step", "rl.step.process", "phase", "part"))
    assert f"{ids.trace_id('attempt', 1):032x}" == root.trace_id == process.trace_id == phase.trace_id == part.trace_id
    assert f"{ids.root_span_id('attempt', 1):016x}" == root.span_id
    assert ["", root.span_id, process.span_id, phase.span_id] == [
        span.parent_span_id for span in (root, process, phase, part)
    ]


def test_the_root_lasts_from_update_to_update() -> None:
    """
    It holds what lies between the steps of the process: validation and checkpoint.
    """
    times = iter(range(100, 1000, 100))
    with capture_spans(clock=lambda: next(times)) as captured:
        for version in (1, 2):
            with stepscope.step():
                stepscope.weights_published(version)

    assert [(100, 200), (200, 300)] == [(span.start_unix_ns, span.end_unix_ns) for span in captured.named("rl.step")]


def test_only_rank_zero_of_the_trainer_emits_the_root() -> None:
    """
    Everybody else's spans point at it all the same.
    """
    for role, rank in (("trainer", 1), ("rollouter", 0)):
        with capture_spans(role=role, rank=rank) as captured, stepscope.step():
            stepscope.weights_published(1)

        assert [] == captured.named("rl.step")
        assert f"{ids.root_span_id('attempt', 1):016x}" == only(captured, "rl.step.process").parent_span_id


def test_work_after_an_update_belongs_to_the_next_step(captured: Captured) -> None:
    """
    Validation after update 1, on a replica that has not been told of it yet, is version 1 and step 2; so is what is
    below it.
    """
    with stepscope.span("validate", after_version=1), stepscope.span("part"):
        pass
    with stepscope.span("other"):
        pass

    for name in ("validate", "part"):
        assert (1, 2) == (only(captured, name).param_version, only(captured, name).step)
    assert f"{ids.root_span_id('attempt', 2):016x}" == only(captured, "validate").parent_span_id
    assert "param_version.end" not in only(captured, "validate").attributes
    assert (0, 1) == (only(captured, "other").param_version, only(captured, "other").step)


def test_a_task_of_an_earlier_step_does_not_stay_in_its_trace(captured: Captured) -> None:
    """
    A background task keeps the context it was started in; its later spans are of the step they run in.
    """
    with stepscope.step():
        with stepscope.span("starts the task"):
            context = otel_context.get_current()
        stepscope.weights_published(1)
    token = otel_context.attach(context)
    with stepscope.step():
        with stepscope.span("later"):
            pass
        stepscope.weights_published(2)
    otel_context.detach(token)

    assert f"{ids.trace_id('attempt', 2):032x}" == only(captured, "later").trace_id


def test_a_foreign_current_span_is_not_our_parent(captured: Captured) -> None:
    """
    An engine's provider has traces of its own; ours stay in the step's.
    """
    foreign = TracerProvider(shutdown_on_exit=False).get_tracer("engine")
    with foreign.start_as_current_span("llm_request"), stepscope.span("ours"):
        pass

    assert f"{ids.trace_id('attempt', 1):032x}" == only(captured, "ours").trace_id


def test_threads_are_all_below_the_process(captured: Captured) -> None:
    """
    A hundred threads at once, none without its step.
    """
    barrier = threading.Barrier(20)

    def work() -> None:
        barrier.wait(10)
        with stepscope.span("outer"), stepscope.span("inner"):
            pass

    with stepscope.step():
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        stepscope.weights_published(1)

    process = only(captured, "rl.step.process")
    assert [process.span_id] * 20 == [span.parent_span_id for span in captured.named("outer")]
    outer = {span.span_id for span in captured.named("outer")}
    assert outer == {span.parent_span_id for span in captured.named("inner")}
