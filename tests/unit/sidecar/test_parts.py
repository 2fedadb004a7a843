"""
Counting what is in a request without parsing it.
"""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope_sidecar import parts, spans
from tests.unit.sidecar.bodies import batch, nested

MANY = 10**6


@pytest.mark.parametrize(
    "counts", [(1, 1, 0), (1, 1, 1), (2, 3, 4), (1, 1, 1000), (1, 300, 2), (500, 1, 1), (70, 0, 0)]
)
def test_resources_scopes_and_spans_are_counted(counts: tuple[int, int, int]) -> None:
    """
    As the parser finds them.
    """
    body = nested(*counts)
    resources, scopes, each = counts

    assert resources * scopes * each == spans.count(ExportTraceServiceRequest.FromString(body))
    every = resources * (1 + scopes * (1 + each))
    assert every == parts.count(body, most=MANY)
    assert (False, True) == (parts.over(body, most=every), parts.over(body, most=every - 1))


def test_a_real_request_has_a_part_for_each_span_and_a_few_more() -> None:
    """
    What a span holds counts nothing.
    """
    assert 500 < parts.count(batch(500), most=MANY) < 510


def test_counting_ends_at_the_bound() -> None:
    """
    However many there are.
    """
    assert 101 == parts.count(nested(1, 1, 10_000), most=100)


@given(st.binary(max_size=60))
def test_what_the_parser_takes_is_counted(body: bytes) -> None:
    """
    All but groups, which no trace request has: nothing passes by the bound.
    """
    try:
        expected = spans.count(ExportTraceServiceRequest.FromString(body))
    except DecodeError:
        return
    try:
        found, why = parts.count(body, most=MANY), ""
    except ValueError as error:
        found, why = 0, str(error)

    assert expected <= found or "wire type" in why


@pytest.mark.parametrize("body", [b"\x0a", b"\x0a\x05", b"\x0a\x02\x12\x05", b"\x0b", b"\xff" * 11, b"\x09\x00"])
def test_what_is_cut_off_or_no_protobuf_is_refused(body: bytes) -> None:
    """
    As the parser does.
    """
    with pytest.raises(ValueError, match=r"cut off|longer|wire type"):
        parts.count(body, most=MANY)
