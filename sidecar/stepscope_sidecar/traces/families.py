"""
Names that number each call, and what such calls are called together.

Pure. Without it every step would have kernels that the one before has not.
"""

import re

_HCCL = re.compile(r"(?P<name>hcom_[A-Za-z]+?)_+(?P<group>\d+)_\d+_\d+")
"""A collective of Ascend: what it does, the group, which one of the group, and how many parts it has."""

_STEP = re.compile(r"ProfilerStep#\d+")


def family(name: str) -> str:
    """
    ``name`` without the number of the call.
    """
    if told := _HCCL.fullmatch(name):
        return told["name"]
    return "ProfilerStep" if _STEP.fullmatch(name) else name


def group(name: str) -> str:
    """
    The group that a collective's ``name`` tells of; "" where it tells none.
    """
    told = _HCCL.fullmatch(name)
    return told["group"] if told else ""
