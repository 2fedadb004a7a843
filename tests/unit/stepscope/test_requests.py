"""
Spans of requests: those within a step's budget, and what becomes of the others.
"""

import pytest

import stepscope
from stepscope.testing import capture_spans
from tests.unit.stepscope.told import only


def test_requests_beyond_the_budget_are_counted() -> None:
    """
    With what is below them; the process's span says how many. The next step has a budget of its own.
    """
    with capture_spans(role="rollouter", request_spans=2) as captured:
        for version in (0, 1):
            stepscope.weights_loaded(version)
            for _ in range(5):
                with stepscope.span("rollout.generate", request=True), stepscope.span("prefill"):
                    pass
            stepscope.weights_loading()

    assert 4 == len(captured.named("rollout.generate")) == len(captured.named("prefill"))
    assert [3, 3] == [span.attributes["rl.requests.untraced"] for span in captured.named("rl.step.process")]


def test_an_untraced_request_says_so_in_its_carrier() -> None:
    """
    An engine that is handed it records nothing, and nothing links to it.
    """
    with capture_spans(request_spans=0):
        with stepscope.span("rollout.generate", request=True) as request:
            carrier = stepscope.inject()

        assert carrier == request.carrier()
        assert carrier["traceparent"].endswith("-00")
        assert stepscope.link(carrier) is None


def test_in_a_selected_step_requests_beyond_the_budget_have_traces_of_their_own() -> None:
    """
    Below the same first 8 bytes, linked to the process's span, and none of them twice the same.
    """
    with capture_spans(role="rollouter", request_spans=1, selected={1}) as captured:
        stepscope.weights_loaded(0)
        for _ in range(3):
            with stepscope.span("rollout.generate", request=True), stepscope.span("prefill"):
                pass
        stepscope.weights_loading()

    process = only(captured, "rl.step.process")
    within, *beyond = captured.named("rollout.generate")
    assert process.trace_id == within.trace_id
    assert 2 == len({span.trace_id for span in beyond})
    assert {process.trace_id[:16]} == {span.trace_id[:16] for span in beyond}
    assert [process.span_id] * 2 == [span.links[0].span_id for span in beyond]
    assert [span.trace_id for span in beyond] == [span.trace_id for span in captured.named("prefill")[1:]]
    assert "rl.requests.untraced" not in process.attributes


@pytest.mark.parametrize(("expected", "sampler", "argument"), [(0, "always_off", ""), (40, "traceidratio", "0.2")])
def test_the_standard_sampler_touches_requests_alone(
    monkeypatch: pytest.MonkeyPatch, expected: int, sampler: str, argument: str
) -> None:
    """
    A draw for each request: those of a step share a trace id, so one by trace id would be all or nothing.
    """
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", f"parentbased_{sampler}")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    with capture_spans() as captured:
        for _ in range(200):
            with stepscope.span("rollout.generate", request=True):
                pass
            with stepscope.span("phase"):
                pass

    assert 200 == len(captured.named("phase"))
    assert expected / 4 <= len(captured.named("rollout.generate")) <= expected * 3
