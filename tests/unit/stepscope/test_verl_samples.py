"""
Samples of verl's agent loops: how they are named, and how their context comes to the server and to the trainer.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.integrations.verl import agent_loop, samples, server, validation
from stepscope.testing import Captured, capture_spans

V1 = {"uid": "u", "session_id": 1}

TRAJECTORY = {"step": 1, "sample_index": 4, "rollout_n": 0, "validate": False}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A process that has heard of nothing.
    """
    monkeypatch.setattr(samples, "known", samples.Known())


def run(given: dict[str, Any], *, step: int, validate: bool = False, result: Any = None) -> tuple[str, Any]:
    """
    One sample, as verl's worker runs it. The id of its request, and the result.
    """
    ids: list[str] = []

    async def original(worker: object, sampling_params: object, trajectory: object, **told: object) -> Any:
        ids.append(agent_loop.asks(lambda client, request_id: "fresh")(None, "caller's"))
        return result

    trajectory = {**TRAJECTORY, "step": step, "validate": validate}
    found = asyncio.run(agent_loop.runs(original)(None, {}, trajectory, agent_name="a", **given))
    return ids[0], found


def carriers(captured: Captured) -> list[str]:
    """
    Of the samples' spans.
    """
    return [f"00-{span.trace_id}-{span.span_id}-01" for span in captured.named("rollout.sample")]


def test_a_sample_of_v1_begins_in_the_step_that_its_prompt_was_handed_out_in() -> None:
    """
    Of validation, in the step after the one that the trainer has completed.
    """
    with capture_spans(role="agent_loop") as captured:
        run(V1, step=3)
        run(V1, step=3, validate=True)

    assert [(2, 3), (3, 4)] == [(span.param_version, span.step) for span in captured.named("rollout.sample")]
    assert [None, "overhead"] == [span.attributes.get("rl.bucket") for span in captured.named("rollout.sample")]


def test_the_trainer_knows_the_span_of_a_sample_by_its_name() -> None:
    """
    In another process, to which nothing was told but name and step.
    """
    with capture_spans(role="agent_loop") as captured:
        run(V1, step=3)
    with capture_spans(role="trainer"):
        found = samples.carrier("u_1", 3)

    assert [{"traceparent": carrier} for carrier in carriers(captured)] == [found]


def test_a_requests_id_takes_the_sample_along() -> None:
    """
    And is as it was once that has been taken off.
    """
    with capture_spans(role="agent_loop") as captured:
        asked, _ = run(V1, step=1)

    assert ("fresh", {"traceparent": carriers(captured)[0]}) == samples.taken(asked)
    assert ("fresh", None) == samples.taken("fresh")


def test_an_id_that_is_the_callers_own_stays_as_it_is() -> None:
    """
    verl is to generate the same again.
    """
    with capture_spans(role="agent_loop"), samples.running("u_1", version=0, validates=False):
        asked = agent_loop.asks(lambda client, request_id: request_id)(None, "caller's")

    assert "caller's" == asked


def test_nothing_points_at_a_sample_beyond_the_budget() -> None:
    """
    It has no span, and its requests none above them.
    """
    with capture_spans(role="agent_loop", request_spans=1) as captured:
        asked = [run({"uid": "u", "session_id": number}, step=1)[0] for number in range(3)]

    assert 1 == len(captured.named("rollout.sample"))
    assert ["fresh", "fresh"] == asked[1:]


def test_the_budget_is_one_steps_though_those_of_two_come_mixed() -> None:
    """
    Samples of two steps are under way at a time.
    """
    with capture_spans(role="agent_loop", request_spans=2) as captured:
        for number in range(6):
            run({"uid": "u", "session_id": number}, step=1 + number % 2)

    assert 4 == len(captured.named("rollout.sample"))


def test_a_sample_of_fully_async_has_a_span_once_a_version_was_told() -> None:
    """
    The newest one, whatever order they are heard in. Its carrier goes where verl leaves room, and nowhere else.
    """
    filled = SimpleNamespace(reward_score=None, extra_fields={"extras": "an agent's"})
    empty = SimpleNamespace(reward_score=0.5, extra_fields={"extras": None})
    with capture_spans(role="agent_loop") as captured:
        run({"uid": "u"}, step=-1, result=empty)
        before = dict(empty.extra_fields)
        samples.hear(None, 3)
        samples.hear(None, 2)
        run({"uid": "u"}, step=-1, result=empty)
        run({"uid": "v"}, step=-1, result=filled)

    assert {"extras": None} == before
    assert [3, 3] == [span.param_version for span in captured.named("rollout.sample")]
    assert {"traceparent": carriers(captured)[0]} == samples.carried(empty.extra_fields["extras"])
    assert "an agent's" == filled.extra_fields["extras"]
    assert samples.carried("an agent's") is None


@pytest.mark.parametrize(("held", "step", "bucket"), [(None, 2, "productive"), (2, 3, "overhead")])
@pytest.mark.parametrize("named", [True, False])
def test_a_request_lies_below_its_sample(
    monkeypatch: pytest.MonkeyPatch, named: bool, held: int | None, step: int, bucket: str
) -> None:
    """
    Also while the replica stays out of its step for validation; the engine gets the id that verl gave.
    """
    asked: list[object] = []

    async def original(*args: object, **told: object) -> object:
        asked.append(told["request_id"] if named else args[3])
        return SimpleNamespace(token_ids=[1, 2])

    monkeypatch.setattr(validation.held, "version", held)
    above = {"traceparent": f"00-{7:032x}-{8:016x}-01"}
    request = f"fresh.{above['traceparent']}"
    with capture_spans(role="rollouter", param_version=1) as captured:
        generate = server.generates(original)
        asyncio.run(generate(None, [], {}, request_id=request) if named else generate(None, [], {}, request))
    (span,) = captured.named("rollout.generate")

    assert ["fresh"] == asked
    assert (f"{7:032x}", f"{8:016x}") == (span.trace_id, span.parent_span_id)
    assert (step, bucket) == (span.step, span.attributes["rl.bucket"])


def test_a_sample_of_another_shape_runs_without_a_span() -> None:
    """
    A newer verl, or a user's own worker.
    """
    with capture_spans(role="agent_loop") as captured:
        runs = agent_loop.runs(_answer)
        found = asyncio.run(runs(None, {}, {"renamed": 1}, agent_name="a"))
        samples.turn(object())

    assert "answer" == found
    assert [] == captured.named("rollout.sample")


def test_an_exception_in_a_sample_goes_on_and_ends_its_span() -> None:
    """
    And the next sample is as any other.
    """
    with capture_spans(role="agent_loop") as captured:
        with pytest.raises(ValueError, match="an agent's"):
            asyncio.run(agent_loop.runs(_fail)(None, {}, TRAJECTORY, **V1))
        run(V1, step=1)

    assert ["error", "unset"] == [span.status for span in captured.named("rollout.sample")]
    assert 0 == samples.known.running


async def _answer(*args: object, **told: object) -> str:
    return "answer"


async def _fail(*args: object, **told: object) -> None:
    raise ValueError("an agent's")
