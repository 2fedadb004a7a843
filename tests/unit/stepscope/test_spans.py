"""
Spans: what they carry, whose children they are, which are emitted.
"""

import logging
import os
import random
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stepscope
from stepscope import ids, names
from stepscope.testing import Captured, SpanData, capture_spans

TAGS = {"param_version", "rl.step", "rl.role", "rl.rank"}


@pytest.fixture
def captured() -> Iterator[Captured]:
    """
    A trainer of rank 0 before its first step.
    """
    with capture_spans() as spans:
        yield spans


def only(captured: Captured, name: str) -> SpanData:
    """
    The one finished span called ``name``.
    """
    (span,) = captured.named(name)
    return span


def test_every_span_says_its_version_step_role_and_rank_as_integers() -> None:
    """
    Also that of the tracer, and with attributes of its own.
    """
    with capture_spans(role="rollouter", rank=3, param_version=6) as captured:
        with stepscope.span("plain"):
            pass
        with stepscope.span("more", bucket="productive", attributes={"rl.tokens": 5}):
            pass
        with stepscope.tracer().start_as_current_span("traced", attributes={"mine": 1}):
            pass
        stepscope.tracer().start_span("by hand").end()

    same = {"param_version": 6, "rl.step": 7, "rl.role": "rollouter", "rl.rank": 3}
    assert same == only(captured, "plain").attributes
    assert same | {"rl.bucket": "productive", "rl.tokens": 5} == only(captured, "more").attributes
    assert same | {"mine": 1} == only(captured, "traced").attributes
    assert same == only(captured, "by hand").attributes


def test_waiting_is_idle_and_says_for_what(captured: Captured) -> None:
    """
    ``wait_for`` alone makes the bucket idle.
    """
    with stepscope.span("train.wait_samples", wait_for="samples"):
        pass

    attributes = only(captured, "train.wait_samples").attributes
    assert ("idle", "samples") == (attributes["rl.bucket"], attributes["rl.wait.for"])


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


def test_a_span_that_sees_an_update_says_both_versions() -> None:
    """
    A request that lives across an update; whoever began it.
    """
    with capture_spans(role="rollouter") as captured:
        stepscope.weights_loaded(0)
        request = stepscope.start_span("rollout.generate", request=True)
        traced = stepscope.tracer().start_span("traced")
        stepscope.weights_loading()
        stepscope.weights_loaded(1)
        request.end()
        traced.end()
        with stepscope.span("short"):
            pass

    for name in ("rollout.generate", "traced"):
        assert (0, 1) == tuple(only(captured, name).attributes[key] for key in ("param_version", "param_version.end"))
    assert "param_version.end" not in only(captured, "short").attributes
    assert all("param_version.end" not in span.attributes for span in captured.named("rl.step.process"))


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


def test_a_foreign_provider_is_tagged(captured: Captured) -> None:
    """
    The public processor puts our four attributes on the spans of any provider.
    """
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(stepscope.SpanTagger())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("engine").start_as_current_span("llm_request"):
        pass
    provider.shutdown()

    (span,) = exporter.get_finished_spans()
    assert {"param_version": 0, "rl.step": 1, "rl.role": "trainer", "rl.rank": 0} == dict(span.attributes or {})


def test_an_exception_is_recorded_and_goes_on(captured: Captured) -> None:
    """
    Type and message, without stack and folders: what a span holds leaves the machine.
    """
    with pytest.raises(FileNotFoundError), stepscope.span("work"):
        raise FileNotFoundError(2, "no such file", "/home/someone/secret/data.bin")
    with pytest.raises(KeyError), stepscope.tracer().start_as_current_span("traced"):
        raise KeyError("x")

    span = only(captured, "work")
    ((event, attributes),) = span.events
    assert ("error", "exception", "FileNotFoundError") == (span.status, event, attributes["exception.type"])
    assert "data.bin" in str(attributes["exception.message"])
    assert "someone" not in str(attributes)
    assert {"exception.type", "exception.message"} == set(attributes)
    assert "error" == only(captured, "traced").status


def test_an_interrupt_is_no_error_of_the_work(captured: Captured) -> None:
    """
    A span left by Ctrl-C ends, without a verdict.
    """
    with pytest.raises(KeyboardInterrupt), stepscope.span("work"):
        raise KeyboardInterrupt

    assert "unset" == only(captured, "work").status


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


def test_ids_leave_the_programs_random_numbers_alone(captured: Captured) -> None:
    """
    Rewards are the same with and without stepscope.
    """
    random.seed(7)
    expected = random.random()
    random.seed(7)
    with stepscope.step(), stepscope.span("work", request=True):
        pass

    assert expected == random.random()


def test_more_attributes_than_the_limit_evict_none_of_ours(
    captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The SDK drops the oldest, and ours are the oldest.
    """
    caplog.set_level(logging.CRITICAL, logger="opentelemetry")
    with stepscope.span("wide") as span:
        for number in range(400):
            span.set(f"key{number}", number)

    attributes = only(captured, "wide").attributes
    assert 256 == len(attributes)
    assert set(attributes) >= TAGS


def test_many_links_are_kept(captured: Captured) -> None:
    """
    A mini-batch points at each rollout it consumed.
    """
    carriers = []
    for _ in range(300):
        with stepscope.span("rollout.generate") as span:
            carriers.append(span.carrier())
    with stepscope.span("train.update_actor", links=[stepscope.link(carrier) for carrier in carriers]):
        pass

    assert 300 == len(only(captured, "train.update_actor").links)


def test_spans_reach_the_profilers_timeline_while_a_window_records() -> None:
    """
    From the process's own on; those of the tracer too; not the root, which is emitted afterwards.
    """
    with capture_spans(selected={2}) as captured:
        for version in (1, 2):
            with stepscope.step():
                with stepscope.span("phase"), stepscope.tracer().start_as_current_span("traced"):
                    pass
                stepscope.weights_published(version)

    windows = captured.agent.windows
    assert ["rl.step.process", "phase", "traced"] == [told["name"] for told in windows.of("span_started")]
    assert {told["span_id"] for told in windows.of("span_started")} == {
        told["span_id"] for told in windows.of("span_ended")
    }


def test_open_spans_are_known_with_their_threads(captured: Captured) -> None:
    """
    The bridge adds those that were begun before a window.
    """
    from stepscope import registration

    session = registration.session
    assert session is not None
    with stepscope.span("open") as span:
        (live,) = session.spans.live()

    assert (span.context.span_id, "open", threading.get_ident()) == (live[0], live[1], live[3])
    assert [] == session.spans.live()


def test_a_windows_exception_reaches_nobody(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is logged, the span comes all the same.
    """

    def fail(span_id: int, name: str) -> None:
        raise RuntimeError("broken bridge")

    captured.agent.windows.recording = True
    monkeypatch.setattr(captured.agent.windows, "span_started", fail)
    with stepscope.span("work"):
        pass

    assert 1 == len(captured.named("work"))


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


def test_resource_says_run_attempt_and_service(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The service is the role, unless the standard variable says otherwise.
    """
    with stepscope.span("work"):
        pass
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with capture_spans() as other, stepscope.span("work"):
        pass

    resource = only(captured, "work").resource
    assert ("trainer", "test", "attempt", os.getpid()) == (
        resource["service.name"],
        resource[names.RUN],
        resource[names.ATTEMPT],
        resource["process.pid"],
    )
    assert "mine" == other.spans[0].resource["service.name"]


def test_the_global_provider_is_left_alone(captured: Captured) -> None:
    """
    Engines set the global provider whenever they trace.
    """
    with stepscope.span("work"):
        pass

    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_a_span_ends_once(captured: Captured) -> None:
    """
    Ending again, or setting afterwards, does nothing.
    """
    span = stepscope.start_span("work")
    span.end()
    span.end()
    span.set("late", 1)
    with span:
        pass

    assert 1 == len(captured.named("work"))
