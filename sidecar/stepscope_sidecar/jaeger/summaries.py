"""
Traces in short, as the search page of Jaeger's newer UI wants them.

Pure. A trace in short is its root, its time, and how many spans of which service it has, of those that were looked
at; times are text, because JavaScript cannot count nanoseconds.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from stepscope_sidecar.jaeger import shape
from stepscope_sidecar.rows import SpanRow


def summary(spans: Sequence[SpanRow]) -> dict[str, Any]:
    """
    The trace of ``spans``, of which there is at least one, in short.
    """
    present = {row.span_id for row in spans}
    tops = [row for row in spans if row.parent_span_id not in present]
    # A step in progress has no root yet: the span that began first stands for it.
    root = next((row for row in tops if not row.parent_span_id), tops[0] if tops else spans[0])
    counts = Counter(shape.service(row.resource) for row in spans)
    errors = Counter(shape.service(row.resource) for row in spans if row.status.get("code") == "error")
    return {
        "traceId": root.trace_id,
        "rootServiceName": shape.service(root.resource),
        "rootOperationName": root.name,
        "minStartTimeUnixNano": str(min(row.start_unix_ns for row in spans)),
        "maxEndTimeUnixNano": str(max(row.end_unix_ns for row in spans)),
        "spanCount": len(spans),
        "errorSpanCount": errors.total(),
        "orphanSpanCount": sum(bool(row.parent_span_id) for row in tops),
        "services": [
            {"name": name, "spanCount": count, "errorSpanCount": errors[name]} for name, count in sorted(counts.items())
        ],
    }
