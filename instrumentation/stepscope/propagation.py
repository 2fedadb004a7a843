"""
Context that travels in a payload: a plain dict with a W3C ``traceparent``, through queues, Ray calls and threads.

A carrier says whose child or follower work is. It never says which step a process is in: a sample's context has
another version than the process that trains on it.
"""

import re
from collections.abc import Mapping
from contextvars import Token
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanContext

TRACEPARENT = "traceparent"

TRACEPARENT_LENGTH = 55
"""Of version 00, which allows nothing after its flags."""

_PATTERN = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

Carrier = Mapping[str, str]


def leave(token: Any) -> None:
    """
    Detach what ``token`` stands for, in the context that it was attached in; elsewhere there is nothing to detach.

    A generator's pieces and a coroutine that is closed may run in others than their beginning. OpenTelemetry logs an
    error there, with a traceback.
    """
    if not isinstance(token, Token):
        # Of another implementation of contexts, which is chosen with OTEL_PYTHON_CONTEXT.
        otel_context.detach(token)
        return
    try:
        token.var.reset(token)
    except (ValueError, RuntimeError):
        return


class Attached(trace.NonRecordingSpan):
    """
    A span of another process, taken as parent from a carrier.
    """


def carrier(context: SpanContext) -> dict[str, str]:
    """
    The carrier of ``context``; empty where there is none.
    """
    if not context.is_valid:
        return {}
    return {TRACEPARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"}


def context(carrier: Carrier | None) -> SpanContext | None:
    """
    The span that ``carrier`` names, if it names one.
    """
    # Whatever came in a payload's place for it.
    text = carrier.get(TRACEPARENT) if isinstance(carrier, Mapping) else None
    match = _PATTERN.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if match is None or match[1] == "ff" or (match[1] == "00" and len(match[0]) != TRACEPARENT_LENGTH):
        return None
    found = SpanContext(
        trace_id=int(match[2], 16),
        span_id=int(match[3], 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(int(match[4], 16) & 1),
    )
    return found if found.is_valid else None


def emitted(carrier: Carrier | None) -> SpanContext | None:
    """
    The span that ``carrier`` names, if it was emitted: nothing can point at a request beyond the span budget.
    """
    found = context(carrier)
    return found if found is not None and found.trace_flags.sampled else None
