"""
Events of spans that a profiler could not draw itself, for a Chrome trace: clipped to the window, marked as continued.

Such a span was open when the window opened, or ran on a thread whose marks the profiler does not record.
"""

from collections.abc import Sequence, Set

import orjson

from stepscope.wire import Closed, ContinuedSpan

MAX_NAME = 512
"""Characters of a span's name, as on the profiler's timeline."""


def events(closed: Closed, *, pid: int, base: int, seen: Set[str]) -> Sequence[bytes]:
    """
    The events of spans that are not on the timeline, clipped to the window.

    A span that the close cut off may be reported as continued too; the profiler has drawn it up to there.
    """
    missing = [span for span in closed.continued if span.span_id.lower() not in seen]
    spans = sorted(missing, key=lambda span: (span.start_unix_ns, span.span_id))
    return [event for span in spans if (event := _event(span, closed, pid=pid, base=base))]


def _event(span: ContinuedSpan, closed: Closed, *, pid: int, base: int) -> bytes:
    open_still = span.end_unix_ns <= 0
    start = max(span.start_unix_ns, closed.opened_unix_ns)
    end = closed.closed_unix_ns if open_still else min(span.end_unix_ns, closed.closed_unix_ns)
    if end < start or start < base:
        return b""
    fields = {
        "ph": "X",
        "cat": "user_annotation",
        "name": _marker(span.name, span.span_id),
        "pid": pid,
        "tid": span.thread,
        # Fragments, because three decimals are exact nanoseconds and a float's are not.
        "ts": orjson.Fragment(_microseconds(start - base)),
        "dur": orjson.Fragment(_microseconds(end - start)),
        "args": {
            "stepscope.continued": True,
            "stepscope.begun_before": span.start_unix_ns < closed.opened_unix_ns,
            "stepscope.ended_after": open_still or span.end_unix_ns > closed.closed_unix_ns,
        },
    }
    return orjson.dumps(fields)


def _marker(name: str, span_id: str) -> str:
    """
    How a span is called on the profiler's timeline: what Kineto keeps of its name, and its id.
    """
    kept = "".join(letter for letter in name if " " <= letter <= "~" and letter not in '"\\')
    return f"{kept[:MAX_NAME]} #{span_id.lower():0>16}"


def _microseconds(nanoseconds: int) -> bytes:
    return b"%d.%03d" % divmod(nanoseconds, 1000)
