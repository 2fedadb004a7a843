"""
How a request says that it is a check: known to the engine here and to the scheduler in the engine's own process.
"""

CHECK = "stepscope-check-"
"""Begins the id of such a request; vLLM keeps the beginning of an id."""


def is_check(name: str) -> bool:
    """
    Whether the request called ``name`` is a check.
    """
    return name.startswith(CHECK)
