"""
Spans: what they carry, and which are told to a profiler.
"""

import logging
import os
import random
import threading
import time

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stepscope
from stepscope import names
from stepscope.testing import Captured, capture_spans
from tests.unit.stepscope.told import only

TAGS = {"param_version", "rl.step", "rl.role", "rl.rank"}


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


def test_a_tagged_span_below_validation_has_the_version_that_is_validated() -> None:
    """
    As our own have there: a replica that stands still is in no step of that version yet.
    """
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(stepscope.SpanTagger())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    engine = provider.get_tracer("engine")
    with capture_spans(role="rollouter"):
        stepscope.weights_loaded(0)
        stepscope.weights_loading()
        with stepscope.span("validate", after_version=1):
            context = otel_context.get_current()
            engine.start_span("engine.request").end()
        engine.start_span("engine.request", context).end()
        engine.start_span("engine.request").end()
    provider.shutdown()

    tagged = [(span.attributes or {}) for span in exporter.get_finished_spans()]
    assert [(1, 2), (1, 2), (0, 1)] == [(tags["param_version"], tags["rl.step"]) for tags in tagged]


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


def test_a_span_has_the_times_of_its_mark(captured: Captured) -> None:
    """
    So that both tell the same. Times that the program gave are left alone.
    """
    began = time.time_ns()
    windows = captured.agent.windows
    windows.recording, windows.marks = True, (began + 5, began + 10**9)
    long_ago = began - 10**10
    with stepscope.span("work"):
        pass
    stepscope.tracer().start_span("given", start_time=long_ago).end(long_ago + 7)

    work, given = only(captured, "work"), only(captured, "given")
    assert (began + 5, began + 10**9) == (work.start_unix_ns, work.end_unix_ns)
    assert (long_ago, long_ago + 7) == (given.start_unix_ns, given.end_unix_ns)


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
