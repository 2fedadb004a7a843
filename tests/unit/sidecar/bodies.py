"""
OTLP requests for the tests of the store and what stands before and behind it.
"""

from stepscope import ids
from stepscope_sidecar.rows import OwnSpan
from stepscope_sidecar.spans import build

ATTEMPT = "20260101-000000-abcdef"

BEGAN = 1_700_000_000_000_000_000


def span(
    number: int,
    *,
    step: int = 1,
    name: str = "train.update_actor",
    seconds: float = 0.5,
    bucket: str | None = "productive",
    role: str = "trainer",
    links: tuple[tuple[str, str], ...] = (),
) -> OwnSpan:
    """
    One of our own spans; its id is ``number``.
    """
    attributes: dict[str, str | int | float | bool] = {
        "param_version": step - 1,
        "rl.step": step,
        "rl.role": role,
        "rl.rank": 0,
    }
    if bucket:
        attributes["rl.bucket"] = bucket
    return OwnSpan(
        name=name,
        trace_id=f"{ids.trace_id(ATTEMPT, step):032x}",
        span_id=f"{number:016x}",
        parent_span_id=f"{ids.root_span_id(ATTEMPT, step):016x}",
        start_unix_ns=BEGAN + number,
        end_unix_ns=BEGAN + number + int(seconds * 1e9),
        attributes=attributes,
        links=links,
    )


def foreign(number: int, *, step: int = 1) -> OwnSpan:
    """
    A span of another program, in the trace of a request of ``step``.
    """
    return OwnSpan(
        name="llm_request",
        trace_id=f"{ids.request_trace_id(ATTEMPT, step, number):032x}",
        span_id=f"{number:016x}",
        start_unix_ns=BEGAN,
        end_unix_ns=BEGAN + 1,
    )


def body(*spans: OwnSpan) -> bytes:
    """
    A request that carries ``spans``.
    """
    return build(spans, resource={"service.name": "tests", "rl.run": "demo", "rl.attempt": ATTEMPT})


def batch(count: int, *, first: int = 1, step: int = 1) -> bytes:
    """
    A request of ``count`` spans numbered from ``first``.
    """
    return body(*(span(first + index, step=step) for index in range(count)))


def nested(*counts: int) -> bytes:
    """
    A request of so many resources, each with so many scopes, each with so many spans, all else empty.
    """
    body = b""
    for tag, count in zip((b"\x12", b"\x12", b"\x0a"), reversed(counts), strict=True):
        size, length = len(body), b""
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        body = (tag + length + bytes([size]) + body) * count
    return body
