"""
What a process says when its window has closed at the boundary; tests change what they are about.
"""

from stepscope import wire

CLOSED = wire.Closed(
    window="w",
    reason="boundary",
    version_at_close=1,
    opened_unix_ns=1,
    closed_unix_ns=2,
    artifact="recording.json",
    trace_id="0" * 32,
    span_id="0" * 16,
    level="spans",
)
