"""
Context in a payload.
"""

import asyncio
import json
import queue
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepscope
from stepscope import propagation
from stepscope.testing import capture_spans


@given(st.integers(min_value=1, max_value=2**128 - 1), st.integers(min_value=1, max_value=2**64 - 1), st.booleans())
def test_a_context_survives_its_carrier(trace_id: int, span_id: int, sampled: bool) -> None:
    """
    Through JSON, as queues and Ray calls carry it.
    """
    context = propagation.context({"traceparent": f"00-{trace_id:032x}-{span_id:016x}-{int(sampled):02x}"})

    assert context is not None
    assert (trace_id, span_id, sampled) == (context.trace_id, context.span_id, context.trace_flags.sampled)
    assert context == propagation.context(json.loads(json.dumps(propagation.carrier(context))))


@pytest.mark.parametrize(
    "carrier",
    [
        None,
        {},
        {"traceparent": ""},
        {"traceparent": "garbage"},
        {"traceparent": 3},
        {"traceparent": f"00-{'0' * 32}-{'1' * 16}-01"},
        {"traceparent": f"ff-{'1' * 32}-{'1' * 16}-01"},
        {"traceparent": f"00-{'1' * 32}-{'1' * 16}-01-more"},
    ],
)
def test_what_names_no_span_is_no_context(carrier: dict[str, str] | None) -> None:
    """
    Bad input from elsewhere is no error.
    """
    with (
        capture_spans() as captured,
        stepscope.attached(carrier),
        stepscope.span("work", links=[stepscope.link(carrier)]),
    ):
        pass

    assert propagation.context(carrier) is None
    assert () == captured.named("work")[0].links


def test_a_carrier_makes_the_parent_and_not_the_step() -> None:
    """
    Work on a sample of step 1 in step 2 is a child of the sample's span, and of version 1 all the same.
    """
    with capture_spans(role="rollouter") as captured:
        stepscope.weights_loaded(0)
        with stepscope.span("rollout.generate"):
            carrier = stepscope.inject()
        stepscope.weights_loading()
        stepscope.weights_loaded(1)
        with stepscope.attached(carrier), stepscope.span("reward"):
            pass
        with stepscope.span("after"):
            pass

    generate, reward, after = (captured.named(name)[0] for name in ("rollout.generate", "reward", "after"))
    assert (generate.trace_id, generate.span_id) == (reward.trace_id, reward.parent_span_id)
    assert (1, 2) == (reward.param_version, reward.step)
    assert after.trace_id != generate.trace_id


def test_a_link_points_at_the_span_of_another_process() -> None:
    """
    Training points at the rollouts it consumed.
    """
    with capture_spans() as captured:
        with stepscope.span("rollout.generate") as generate:
            carrier = generate.carrier()
        with stepscope.step(), stepscope.span("train.update_actor", links=[stepscope.link(carrier), None]):
            pass

    rollout, train = captured.named("rollout.generate")[0], captured.named("train.update_actor")[0]
    assert [(rollout.trace_id, rollout.span_id)] == [(link.trace_id, link.span_id) for link in train.links]


def test_nothing_current_means_the_step_of_the_process() -> None:
    """
    A payload made between spans points at the process's part of the step, and before that at the step's root.
    """
    with capture_spans() as captured:
        before = stepscope.inject()
        with stepscope.step():
            inside = stepscope.inject()
            stepscope.weights_published(1)

    root, process = captured.named("rl.step")[0], captured.named("rl.step.process")[0]
    assert f"00-{root.trace_id}-{root.span_id}-01" == before["traceparent"]
    assert f"00-{process.trace_id}-{process.span_id}-01" == inside["traceparent"]


def test_a_thread_is_below_the_step_and_a_queue_carries_the_rest() -> None:
    """
    A thread has no current span; with a carrier it continues where the payload came from.
    """
    payloads: queue.Queue[dict[str, str]] = queue.Queue()

    def work() -> None:
        with stepscope.span("bare"):
            pass
        with stepscope.attached(payloads.get(timeout=60)), stepscope.span("continued"):
            pass

    with capture_spans() as captured, stepscope.step(), stepscope.span("producer"):
        payloads.put(stepscope.inject())
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)

    by_name = {span.name: span for span in captured.spans}
    assert by_name["rl.step.process"].span_id == by_name["bare"].parent_span_id
    assert by_name["producer"].span_id == by_name["continued"].parent_span_id


def test_tasks_keep_their_own_parents() -> None:
    """
    Two tasks that interleave do not adopt each other's spans.
    """

    async def request(name: str, barrier: asyncio.Barrier) -> None:
        with stepscope.span(name):
            await barrier.wait()
            with stepscope.span(f"{name}.child"):
                await barrier.wait()

    async def both() -> None:
        barrier = asyncio.Barrier(2)
        await asyncio.gather(request("a", barrier), request("b", barrier))

    with capture_spans() as captured:
        asyncio.run(both())

    by_name = {span.name: span for span in captured.spans}
    assert by_name["a"].span_id == by_name["a.child"].parent_span_id
    assert by_name["b"].span_id == by_name["b.child"].parent_span_id
