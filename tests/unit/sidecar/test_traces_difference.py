"""
What differs between two recordings, and what is noise.
"""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope_sidecar.traces import Trace
from stepscope_sidecar.traces.collectives import collectives
from stepscope_sidecar.traces.difference import Difference, What, difference
from stepscope_sidecar.traces.families import family
from stepscope_sidecar.traces.work import Unit, Work, unit
from tests.unit.sidecar.timelines import Timeline

Calls = Sequence[tuple[str, int]]


def kernels(calls: Calls, *, repeats: int = 1, disturbed: Sequence[int] = ()) -> Trace:
    """
    These kernels one after the other, all of it ``repeats`` times; calls at ``disturbed`` take 50 times as long.
    """
    made, now = Timeline(), 0
    for number, (name, length) in enumerate(list(calls) * repeats):
        length *= 50 if number in disturbed else 1
        made.kernel(name, now, now + length)
        now += length
    return made.trace()


def of(before: Trace, after: Trace, *, before_units: int = 3, after_units: int = 3) -> Difference:
    """
    The difference, with so many mini-batches in each.
    """
    return difference(
        before, after, work_before=Work(mini_batches=before_units), work_after=Work(mini_batches=after_units)
    )


def told(found: Difference) -> set[tuple[str, str]]:
    """
    What and which.
    """
    return {(change.what.value, change.name) for change in found.changes}


STEP: Calls = [(f"kernel {number}", 100 + number) for number in range(12)]


def test_what_came_went_and_slowed_is_named_and_nothing_else() -> None:
    """
    With calls before and after, and time per mini-batch.
    """
    later = [("new", 50), *((name, length * 10 if name == "kernel 3" else length) for name, length in STEP[1:])]
    found = of(kernels(STEP, repeats=3), kernels(later, repeats=3))
    slower = next(change for change in found.changes if change.what is What.SLOWER)

    assert {("added", "new"), ("gone", "kernel 0"), ("slower", "kernel 3")} == told(found)
    assert (3, 3, 103, 1030) == (slower.count_before, slower.count_after, slower.before_ns, slower.after_ns)
    assert (Unit.MINI_BATCH, 3, 3, 1.25) == (found.unit, found.before, found.after, found.band["kernel"])
    assert {"kernel": 13, "operator": 0} == found.compared


def test_a_disturbed_call_is_no_difference() -> None:
    """
    What some call of a repeated piece of work lost to others is not in its shortest repetition, nor in the median.
    """
    quiet = kernels(STEP, repeats=3)

    assert not of(quiet, kernels(STEP, repeats=3, disturbed=[1, 14, 27])).changes
    same = [("kernel", 100)] * 9
    assert not of(kernels(same), kernels(same, disturbed=[2]), before_units=1, after_units=1).changes


def test_one_place_of_many_that_slowed_is_found() -> None:
    """
    Though the kernel is called in others too, which are as quick as ever.
    """
    calls = [*[("gemm", 100)] * 9, ("relu", 100)]
    later = [*[("gemm", 100)] * 8, ("gemm", 2000), ("relu", 100)]

    assert {("slower", "gemm")} == told(of(kernels(calls, repeats=3), kernels(later, repeats=3)))
    assert {("faster", "gemm")} == told(of(kernels(later, repeats=3), kernels(calls, repeats=3)))


def test_a_pace_that_all_share_is_no_change_of_any() -> None:
    """
    A device with a lower clock makes all slower: it is said once, and what is slower beyond it is named.
    """
    later = [(name, length * (9 if name == "kernel 5" else 3)) for name, length in STEP]
    found = of(kernels(STEP, repeats=3), kernels(later, repeats=3))

    assert {("slower", "kernel 5")} == told(found)
    assert 3.0 == found.pace["kernel"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (30, 40, set()),  # in each mini-batch
        (33, 43, set()),  # in each, and some once in a step
        (3, 3, set()),  # once in a step
        (30, 50, {("more calls", "kernel")}),
        (30, 29, {("fewer calls", "kernel")}),
    ],
)
def test_calls_are_counted_per_unit_of_work(before: int, after: int, expected: set[tuple[str, str]]) -> None:
    """
    A step of four mini-batches is compared with one of three.
    """
    found = of(kernels([("kernel", 5)] * before), kernels([("kernel", 5)] * after), before_units=3, after_units=4)

    assert expected == told(found)


def test_what_takes_next_to_no_time_is_not_slower() -> None:
    """
    A kernel that took ten times as long is not worth a word where that is nothing of the whole.
    """
    calls = [("large", 100_000), ("tiny", 5)]

    assert not of(kernels(calls, repeats=3), kernels([("large", 100_000), ("tiny", 50)], repeats=3)).changes


def test_operators_are_compared_by_their_own_time() -> None:
    """
    One that is slow because of one inside it is not named.
    """

    def step(inner: int) -> Trace:
        made = Timeline()
        for start in (0, 10_000, 20_000):
            made.operator("aten::linear", start, start + 100 + inner).operator("aten::addmm", start, start + inner)
        return made.trace()

    assert {("slower", "aten::addmm")} == told(of(step(100), step(1000)))
    assert 2.0 == of(step(100), step(100)).band["operator"]


def test_a_name_that_numbers_its_calls_is_one_name() -> None:
    """
    Ascend counts the collectives of a group: those of the next step are no new ones.
    """
    before, after = ([(f"hcom_allReduce__210_{number}_1", 100)] for number in (3, 4))
    exchanges = collectives(kernels([("hcom_allReduce__210_3_1", 100), ("hcom_allReduce__210_4_1", 50)]))

    assert not of(kernels(before), kernels(after)).changes
    assert {"kernel": 1, "operator": 0} == of(kernels(before), kernels(after)).compared
    assert [("hcom_allReduce", "210", 2, 150)] == [(one.name, one.group, one.count, one.total_ns) for one in exchanges]
    assert ["ProfilerStep", "aten::add", "triton_poi_fused_12"] == [
        family(name) for name in ("ProfilerStep#5", "aten::add", "triton_poi_fused_12")
    ]


CALLS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 1000)), max_size=30)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CALLS, st.integers(1, 4))
def test_a_recording_differs_from_itself_in_nothing(calls: Calls, units: int) -> None:
    """
    Whatever is in it.
    """
    assert not of(kernels(calls), kernels(calls), before_units=units, after_units=units).changes


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Work(mini_batches=3, samples=12), Work(mini_batches=4, samples=16), Unit.MINI_BATCH),
        (Work(mini_batches=3, samples=12), Work(mini_batches=3, samples=13), Unit.SAMPLE),
        (Work(mini_batches=3), Work(mini_batches=4), Unit.MINI_BATCH),
        (Work(tokens=9, requests=2), Work(tokens=8, requests=2), Unit.TOKEN),
        (Work(tokens=9, requests=2), Work(requests=2), Unit.REQUEST),
        (Work(mini_batches=3), Work(), Unit.STEP),
    ],
)
def test_the_unit_is_one_that_both_know(one: Work, other: Work, expected: Unit) -> None:
    """
    Mini-batches where they are of one size.
    """
    assert expected == unit(one, other)
