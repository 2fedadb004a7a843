"""
A connection that looks for its sidecar quickly, and what is said on it, as tests of it share them.
"""

from stepscope import wire

DEADLINE = 1.0
"""Seconds, where a test waits for them to pass."""

MISSED = wire.Missed(step=5, param_version=4, reason="sidecar_lost", unix_ns=1)


def register(number: int) -> wire.Register:
    """
    A registration like any other.
    """
    return wire.Register(
        id=number, protocol=1, run="r", attempt="a", node="n", pid=1, process_start=1, role="trainer", rank=0
    )


def ask(number: int) -> wire.Open:
    """
    A request like any other.
    """
    return wire.Open(id=number, step=5, param_version=4)
