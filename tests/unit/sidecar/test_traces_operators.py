"""
Operators on the host: each moment counts once, for one operator and for one span.
"""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope_sidecar.traces import NONE, Trace, intervals
from stepscope_sidecar.traces.operators import operators
from tests.unit.sidecar.timelines import Timeline


def _own(trace: Trace) -> dict[str, int]:
    found = operators(trace)
    return {trace.name_of(row): int(own) for row, own in zip(found.rows, found.own_ns, strict=True)}


def _owners(trace: Trace, parents: dict[str, str] | None = None) -> dict[str, str]:
    found = operators(trace, parents)
    return {
        trace.name_of(row): "" if owner == NONE else trace.name_of(owner).split(" #")[0]
        for row, owner in zip(found.rows.tolist(), found.owner.tolist(), strict=True)
    }


def test_an_operator_s_own_time_is_without_those_inside_it() -> None:
    """
    Also where one that began inside it ends after it; threads are apart.
    """
    made = Timeline().operator("outer", 0, 100).operator("inner", 10, 40).operator("innermost", 10, 20)
    made.operator("late", 90, 130).operator("elsewhere", 5, 25, thread=8).operator("instant", 50, 50)

    assert {
        "outer": 60,
        "inner": 20,
        "innermost": 10,
        "late": 40,
        "elsewhere": 20,
        "instant": 0,
    } == _own(made.trace())


def test_an_operator_belongs_to_the_innermost_span_that_it_began_in() -> None:
    """
    On its own thread; one that began before a span, or on a thread without one, belongs to none.
    """
    made = Timeline().mark("step", 1, 10, 100).mark("update", 2, 20, 50).mark("other thread", 3, 0, 100, thread=8)
    made.operator("before", 5, 30).operator("in step", 12, 15).operator("in update", 20, 30)
    made.operator("after update", 50, 55).operator("nowhere", 100, 110).operator("no span", 20, 30, thread=9)

    expected = {"before": "", "in step": "step", "in update": "update", "after update": "step"}
    assert {**expected, "nowhere": "", "no span": ""} == _owners(made.trace())


def test_what_runs_for_several_requests_at_once_belongs_to_what_they_have_in_common() -> None:
    """
    Spans of one event loop overlap and are not inside each other, whatever their times look like.
    """
    made = Timeline().mark("step", 1, 0, 100).mark("request", 2, 10, 60).mark("request", 3, 20, 40)
    made.operator("one request", 12, 14).operator("two requests", 25, 30).operator("one again", 45, 50)
    requests = {f"{number:016x}": f"{1:016x}" for number in (2, 3)}
    trace = made.trace()

    expected = {"one request": "request", "two requests": "step", "one again": "request"}
    assert expected == _owners(trace, requests)
    assert expected | {"two requests": "request"} == _owners(trace)


SPANS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.integers(0, 2)), max_size=25)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operators_=SPANS, marks=SPANS)
def test_operator_time_adds_up_exactly(
    operators_: list[tuple[int, int, int]], marks: list[tuple[int, int, int]]
) -> None:
    """
    That of all spans, and what is in none, is the time in which any operator ran, per thread: whatever overlaps.
    """
    made = Timeline()
    for start, length, thread in operators_:
        made.operator("op", start, start + length, thread=thread)
    for number, (start, length, thread) in enumerate(marks, 1):
        made.mark("span", number, start, start + length, thread=thread)
    trace = made.trace()
    found = operators(trace)
    time, count = found.by_owner()

    unions = [intervals.of(trace, found.rows[trace.tid[found.rows] == tid]) for tid in np.unique(trace.tid)]
    assert sum(union.total for union in unions) == found.total_ns == sum(time.values())
    assert len(operators_) == sum(count.values())
    assert (found.own_ns >= 0).all()
