"""
Trace and span ids that every process computes alike, and the ids of runs, attempts and processes.

Pure but for reading /proc and the clock in the two functions that say so.
"""

import hashlib
import os
import secrets
import socket
import time
from pathlib import Path

from stepscope import names


def trace_id(attempt: str, step: int) -> int:
    """
    The 128-bit trace id of ``step`` in ``attempt``.
    """
    return int.from_bytes(_digest("trace", attempt, step)[:16]) or 1


def request_trace_id(attempt: str, step: int, request: int) -> int:
    """
    A trace of its own for a request of ``step``: its first 8 bytes are those of the step's trace.
    """
    head = trace_id(attempt, step) >> 64
    return head << 64 | (int.from_bytes(_digest("request", attempt, step, request)[:8]) or 1)


def root_span_id(attempt: str, step: int) -> int:
    """
    The 64-bit span id of the root ``rl.step`` of ``step``, known before anybody emits it.
    """
    return int.from_bytes(_digest("root", attempt, step)[:8]) or 1


def sample_span_id(attempt: str, name: str) -> int:
    """
    The 64-bit span id of sample ``name`` of ``attempt``: who trains on it knows it by the name.
    """
    return int.from_bytes(_digest("sample", attempt, name)[:8]) or 1


def new_attempt() -> str:
    """
    An id for a start of a run: sorts by time, unique across machines. Reads the clock.
    """
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def process_start(pid: int | None = None) -> int:
    """
    When process ``pid`` (default: this one) began, in clock ticks since boot; 0 where it cannot be read.
    """
    try:
        text = Path(f"/proc/{pid or os.getpid()}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


def node() -> str:
    """
    The name of this node: that of the machine, unless ``STEPSCOPE_NODE`` says otherwise.
    """
    return os.environ.get(names.NODE, "").strip() or socket.gethostname()


def _digest(kind: str, *parts: object) -> bytes:
    return hashlib.sha256("/".join([kind, *map(str, parts)]).encode()).digest()
