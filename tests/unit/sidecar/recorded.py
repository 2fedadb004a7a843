"""
The shared recordings of many profilers and releases, and what an independent script found in them.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from stepscope_sidecar.traces import Trace
from tests.unit.sidecar.traces import DATA

present = pytest.mark.skipif(not DATA.is_dir(), reason="the shared recordings are not beside this repository")


@cache
def facts() -> Mapping[str, Mapping[str, Any]]:
    """
    What is known of each file, by its path below the folder of recordings.
    """
    return cast("Mapping[str, Mapping[str, Any]]", json.loads((DATA / "facts.json").read_text()))


def ns(microseconds: object) -> int:
    """
    What a fact says in microseconds, as nanoseconds; it is exact.
    """
    exact = Decimal(str(microseconds)) * 1000
    assert exact == int(exact)
    return int(exact)


def top(trace: Trace, rows: npt.NDArray[np.integer]) -> list[list[Any]]:
    """
    The five names with the most time: name, count, nanoseconds.
    """
    places = trace.name[rows]
    total = np.zeros(len(trace.names), dtype=np.int64)
    np.add.at(total, places, trace.duration_ns[rows])
    count = np.bincount(places, minlength=len(trace.names))
    found = sorted(np.unique(places), key=lambda place: (-total[place], trace.names[place]))[:5]
    return [[trace.names[place], int(count[place]), int(total[place])] for place in found]
