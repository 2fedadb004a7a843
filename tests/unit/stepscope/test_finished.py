"""
Finished spans that are handed on with other times, or with the version they ended under.
"""

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, TracerProvider

from stepscope import finished, names


def span(**attributes: int) -> ReadableSpan:
    """
    A span of the SDK's with 150 more attributes and two more events than it may have.
    """
    limits = SpanLimits(max_span_attributes=10, max_events=3)
    made = TracerProvider(span_limits=limits, shutdown_on_exit=False).get_tracer("test").start_span("work")
    assert isinstance(made, Span)
    for number in range(160 - len(attributes)):
        made.set_attribute(f"key{number}", number)
    made.set_attributes(attributes)
    for _ in range(5):
        made.add_event("happened")
    made.end()
    return made


def test_what_the_limits_dropped_is_still_counted() -> None:
    """
    In what is sent, too.
    """
    told = finished.told(span(), start_ns=5, end_ns=9)
    (sent,) = encode_spans([told]).resource_spans[0].scope_spans[0].spans

    assert (5, 9, 150, 2) == (told.start_time, told.end_time, told.dropped_attributes, told.dropped_events)
    assert (5, 9, 150, 2) == (
        *(sent.start_time_unix_nano, sent.end_time_unix_nano),
        *(sent.dropped_attributes_count, sent.dropped_events_count),
    )


def test_only_what_changes_is_changed() -> None:
    """
    A span without a mark is handed on as it is, and so is one that ended under the version it began under.
    """
    original = span(**{names.PARAM_VERSION: 3})
    turned = finished.told(original, version=4)

    assert finished.told(original) is original
    assert finished.told(original, version=3) is original
    assert (3, 4) == tuple((turned.attributes or {}).get(key) for key in (names.PARAM_VERSION, names.PARAM_VERSION_END))
    assert (original.start_time, original.end_time) == (turned.start_time, turned.end_time)


def test_a_time_that_the_program_gave_is_told_from_the_clocks() -> None:
    """
    It lies before the moment or after it, not just before it.
    """
    now = 10**18

    assert [False, True, True, False, False] == [
        finished.same(time_ns, now) for time_ns in (None, now, now - 999_999, now - 1_000_000, now + 1)
    ]
