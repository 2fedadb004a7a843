"""
The public calls, fed what they do not take: nothing is raised into the program, and what comes after is as ever.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

import stepscope
from stepscope import propagation
from stepscope.driven import told
from stepscope.received import Received
from stepscope.testing import Captured, capture_spans
from stepscope.version import usable

CARRIER = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}


class Awkward:
    """
    As an array is: neither true nor false, no number though it seems one, and not to be compared.
    """

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")

    def __index__(self) -> int:
        raise TypeError("only integer scalar arrays can be converted")

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __hash__(self) -> int:
        raise TypeError("unhashable")

    def __iter__(self) -> Iterator[object]:
        raise ValueError("iteration over a 0-d array")

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Broken(Mapping[str, str]):
    """
    A mapping that cannot be read.
    """

    def __getitem__(self, key: str) -> str:
        raise OSError("gone")

    def __iter__(self) -> Iterator[str]:
        raise OSError("gone")

    def __len__(self) -> int:
        return 1


WRONG: list[Any] = [5, -1, 0.5, True, "default", CARRIER["traceparent"], b"x", ["x"], {"traceparent": 5}, {5: object()}]
WRONG += [object(), Awkward(), Broken()]


def _step(value: Any) -> None:
    with stepscope.step(profile=value):
        pass


def _span(value: Any) -> None:
    for given in ("bucket", "attributes", "links", "wait_for", "after_version", "request"):
        with stepscope.span("validate", **{given: value}) as span:
            span.set("key", value)
            span.set(value, 1)
    with stepscope.span(value), stepscope.span("work", links=[value]):
        pass


def _start_span(value: Any) -> None:
    for given in ("bucket", "attributes", "links", "wait_for", "after_version", "request"):
        stepscope.start_span("validate", **{given: value}).end()
    stepscope.start_span(value, links=[value]).end()


def _attached(value: Any) -> None:
    with stepscope.attached(value), stepscope.span("work"):
        pass


def _link(value: Any) -> None:
    with stepscope.span("work", links=[stepscope.link(value)]):
        pass


def _consumed(value: Any) -> None:
    stepscope.consumed(mini_batch=value, rows=[])
    stepscope.consumed(mini_batch=0, rows=value)
    for at in range(4):
        row: list[Any] = ["sample", 0, 0, None]
        row[at] = value
        stepscope.consumed(mini_batch=0, rows=[tuple(row)])


def _tracer(value: Any) -> None:
    for given in ("attributes", "links", "context"):
        with stepscope.tracer().start_as_current_span("work", **{given: value}):
            pass
    stepscope.tracer().start_span(value, links=[value]).end()


CALLS: dict[str, Callable[[Any], object]] = {
    "ashutdown": lambda value: asyncio.run(stepscope.ashutdown(timeout=value)),
    "attached": _attached,
    "aweights_loaded": lambda value: asyncio.run(stepscope.aweights_loaded(value)),
    "aweights_published": lambda value: asyncio.run(stepscope.aweights_published(value)),
    "consumed": _consumed,
    "link": _link,
    "register_profiler": stepscope.register_profiler,
    "shutdown": lambda value: stepscope.shutdown(timeout=value),
    "span": _span,
    "start_span": _start_span,
    "step": _step,
    "tracer": _tracer,
    "weights_loaded": stepscope.weights_loaded,
    "weights_published": stepscope.weights_published,
}

NOTHING_TO_FEED = {
    "astart_profiling",
    "astop_profiling",
    "aweights_loading",
    "current_step",
    "current_version",
    "inject",
    "otlp_endpoint",
    "start_profiling",
    "stop_profiling",
    "timings",
    "weights_loading",
}


def test_every_public_call_is_fed() -> None:
    """
    But those that take nothing, and ``init()``, which may raise.
    """
    fed = CALLS.keys() | NOTHING_TO_FEED | {"ConfigurationError", "SpanTagger", "StepscopeError", "init"}

    assert fed == set(stepscope.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_argument_never_reaches_the_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Whatever it is; every span that came of it can be delivered, and the next one is as ever.
    """
    finished: list[ReadableSpan] = []
    genuine = Captured.__call__

    def take(captured: Captured, span: ReadableSpan) -> None:
        finished.append(span)
        genuine(captured, span)

    monkeypatch.setattr(Captured, "__call__", take)
    for value in WRONG:
        with capture_spans(selected={1, 2}) as captured:
            CALLS[name](value)
            if not captured.agent.closed:
                with stepscope.span("after"):
                    pass
                assert 1 == len(captured.named("after"))

    assert len(finished) == sum(
        len(item.spans) for scope in encode_spans(finished).resource_spans for item in scope.scope_spans
    )


@pytest.mark.parametrize("value", WRONG[:-1])
def test_what_is_no_carrier_names_nothing(value: Any) -> None:
    """
    Neither a parent nor a step, wherever it is taken; a call that comes with it is a call like any other.
    """
    assert propagation.context(value) is None
    assert told(value) is None
    with capture_spans(), Received(value):
        assert stepscope.link(value) is None


@pytest.mark.parametrize(("expected", "value"), [(3, 3), (0, 0), *((None, value) for value in WRONG[1:])])
def test_a_version_is_a_whole_number(expected: int | None, value: Any) -> None:
    """
    Of any kind, and at least 0.
    """
    assert expected == usable(value)


def test_a_span_keeps_its_step_where_the_version_it_was_given_is_none() -> None:
    """
    As if it had not been given.
    """
    with capture_spans() as captured, stepscope.span("validate", after_version="default"):  # type: ignore[arg-type]
        pass

    (span,) = captured.named("validate")
    assert (0, 1) == (span.param_version, span.step)
