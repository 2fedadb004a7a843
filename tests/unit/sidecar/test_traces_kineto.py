"""
Kineto's traces of all releases and accelerators, read, against what an independent script found in them.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from stepscope_sidecar import traces
from stepscope_sidecar.traces import Clock, Kind, Trace, intervals
from tests.unit.sidecar.recorded import facts, ns, present, top
from tests.unit.sidecar.traces import DATA

pytestmark = present


def _known() -> list[str]:
    if not DATA.is_dir():
        return []
    folders = ("kineto/", "generated/")
    return sorted(name for name, fact in facts().items() if name.startswith(folders) and fact.get("n_events"))


def _check_kernels(trace: Trace, fact: Mapping[str, Any]) -> None:
    rows = trace.rows(Kind.KERNEL)

    assert fact.get("count", 0) == len(rows)
    assert ns(fact.get("sum_us", 0)) == int(trace.duration_ns[rows].sum())
    assert ns(fact.get("busy_us", 0)) == intervals.busy_ns(trace, rows)
    assert [[name, count, ns(us)] for name, count, us in fact.get("top5_by_total_us", [])] == top(trace, rows)
    assert fact.get("streams", 0) == len(set(trace.track[rows].tolist()))
    if fact:
        first, last = (ns(fact[key]) + trace.header.base_ns for key in ("first_ts", "last_end"))
        assert (first, last) == (int(trace.start_ns[rows].min()), int(trace.end_ns[rows].max()))


@pytest.mark.parametrize("name", _known())
def test_kineto_is_read_exactly(name: str) -> None:
    """
    All events with a length; kernels (count, sum, busy time, top five, streams), steps, annotations, rank, devices and
    the first event's epoch are those of the facts, to the nanosecond, and nothing is flagged.
    """
    fact = facts()[name]
    trace = traces.open(DATA / name)

    assert sum(fact["cat_X"].values()) - fact["cat_X"].get("Trace", 0) == len(trace)
    assert ("kineto", ()) == (trace.header.format, trace.header.flags)
    assert (Clock.EPOCH, fact["first_epoch_ns"]) == (trace.header.clock, int(trace.start_ns.min()))
    assert ns(fact["span_us"]) == int(trace.end_ns.max() - trace.start_ns.min())
    _check_kernels(trace, fact.get("kernels", {}))
    steps = [(step, ns(ts) + trace.header.base_ns, ns(us)) for step, ts, us, _ in _steps(fact)]
    rows = trace.rows(Kind.ANNOTATION, Kind.DEVICE_ANNOTATION)
    found = [(trace.name_of(row), int(trace.start_ns[row]), int(trace.duration_ns[row])) for row in rows]
    assert sorted(steps) == sorted(step for step in found if step[0].startswith("ProfilerStep"))
    assert fact.get("distributedInfo", {}).get("rank") in {trace.header.rank, None}
    assert fact.get("distributedInfo", {}).get("world_size") in {trace.header.world_size, None}
    assert fact.get("devices", {}) == dict(Counter(trace.header.devices))
    for kind, capital, key in ((Kind.MEMCPY, "Memcpy", "gpu_memcpy"), (Kind.MEMSET, "Memset", "gpu_memset")):
        told = fact.get(key) or fact.get(capital) or {"count": 0, "sum_us": 0}
        rows = trace.rows(kind)
        assert (told["count"], ns(told["sum_us"])) == (len(rows), int(trace.duration_ns[rows].sum()))


def _steps(fact: Mapping[str, Any]) -> list[list[Any]]:
    return list(fact.get("profiler_steps", []))
