"""
A recording in numbers: by hand for what the numbers mean, and over all shared recordings.
"""

import pytest

from stepscope_sidecar import traces
from stepscope_sidecar.traces import Collective, Fault, Flag, Kind
from stepscope_sidecar.traces.bound import Side
from stepscope_sidecar.traces.collectives import Exchange
from stepscope_sidecar.traces.devices import DeviceTime
from stepscope_sidecar.traces.summary import summarise
from stepscope_sidecar.traces.ties import How
from tests.unit.sidecar.recorded import facts, ns, present
from tests.unit.sidecar.timelines import Timeline, ids
from tests.unit.sidecar.traces import DATA


def test_a_device_s_time_is_split_without_counting_a_moment_twice() -> None:
    """
    Computing, communication and memory overlap on streams; busy and idle are what is left of the wall.
    """
    made = Timeline().kernel("gemm", 100, 200).kernel("gemm", 150, 250, stream=8)
    made.kernel("ncclDevKernel_AllReduce_Sum_f32", 240, 300, stream=9)
    made.work(Kind.MEMCPY, "Memcpy HtoD", 280, 350, stream=10).work(Kind.MEMSET, "Memset", 190, 210, stream=10)
    made.kernel("gemm", 0, 1000, device=1)
    summary = summarise(made.trace(), window=(0, 400))

    assert (
        DeviceTime(
            wall_ns=400,
            busy_ns=250,
            idle_ns=150,
            compute_ns=150,
            communication_ns=60,
            communication_exposed_ns=50,
            memory_ns=90,
            memory_exposed_ns=50,
        )
        == summary.devices[0]
    )
    assert (400, 0) == (summary.devices[1].compute_ns, summary.devices[1].idle_ns)
    total = summary.device_time
    assert total is not None
    assert (800, 650, 10, 40) == (
        total.wall_ns,
        total.busy_ns,
        total.communication_overlapped_ns,
        total.memory_overlapped_ns,
    )


def test_names_are_added_up_and_collectives_by_group() -> None:
    """
    Kernels by their time, most first; collectives with what the profiler says of them.
    """
    told = Collective(name="allreduce", elements_in=8, elements_out=8, group_size=2, group="dp", dtype="Float")
    made = Timeline().kernel("small", 0, 10).kernel("large", 10, 50).kernel("small", 50, 55)
    for start in (60, 80):
        made.work(Kind.KERNEL, "ncclDevKernel", start, start + 15, collective=told)
    summary = summarise(made.trace())

    assert [("large", 1, 40), ("ncclDevKernel", 2, 30), ("small", 2, 15)] == [
        (one.name, one.count, one.total_ns) for one in summary.kernels
    ]
    assert (
        Exchange(
            name="allreduce",
            on_device=True,
            count=2,
            total_ns=30,
            group="dp",
            group_size=2,
            dtype="Float",
            elements=16,
        ),
    ) == summary.collectives


def test_a_span_has_the_device_time_of_what_was_launched_in_it() -> None:
    """
    Its own, and with spans inside it; the rest belongs to none.
    """
    made = Timeline().mark("step", 1, 0, 100).mark("update", 2, 20, 60)
    for number, start in enumerate((10, 30, 110)):
        made.launch(number, start, start + 2).kernel("k", start + 200, start + 205 + number, correlation=number)
    summary = summarise(made.trace())

    assert [("step", 5, 1, 11, 11), ("update", 6, 1, 6, 6)] == [
        (span.name, span.device_ns, span.device_work, span.device_inside_ns, span.device_busy_ns)
        for span in summary.spans
    ]
    assert (18, 7) == (summary.device_work_ns, summary.unattributed_device_ns)
    assert {How.CORRELATION: (2, 11), How.OUTSIDE: (1, 7)} == dict(summary.attributed)


def test_without_a_device_operators_take_its_place_and_say_so() -> None:
    """
    What is absent has a reason; operators are by their own time, and spans have theirs.
    """
    made = (
        Timeline().mark("train.update_actor", 5, 0, 90).operator("aten::linear", 10, 60).operator("aten::addmm", 20, 55)
    )
    made.operator("aten::add", 92, 95).host(Kind.ANNOTATION, "gloo:all_reduce", 96, 99)
    summary = summarise(made.trace(), window=(0, 100))
    (span,) = summary.spans

    assert {"devices": "the recording holds no work of a device"} == dict(summary.absent)
    assert (None, None, Side.UNKNOWN) == (summary.device_time, summary.launches, summary.bound.by)
    assert [("aten::addmm", 35), ("aten::linear", 15), ("aten::add", 3)] == [
        (one.name, one.own_ns) for one in summary.operators
    ]
    assert (53, 53, 3) == (summary.operator_ns, summary.host_busy_ns, summary.unattributed_operator_ns)
    assert ("train.update_actor", ids(5)[0], 90, 50, 2) == (
        span.name,
        span.span_id,
        span.duration_ns,
        span.operator_ns,
        span.operators,
    )
    assert [("gloo:all_reduce", False, 1)] == [(one.name, one.on_device, one.count) for one in summary.collectives]


def test_a_broken_recording_says_what_is_wrong_with_it() -> None:
    """
    Instead of empty tables without a word.
    """
    summary = summarise(Timeline().trace(Flag(fault=Fault.EMPTY, reason="the file is empty")), window=(0, 100))

    assert {"devices", "operators", "spans"} == set(summary.absent)
    assert {"the file is empty"} == set(summary.absent.values())


def _steps(*, launch: int, begin: int, length: int, every: int) -> Timeline:
    made = Timeline()
    for number in range(10):
        made.launch(number, launch + number * every, launch + number * every + 1)
        made.kernel("k", begin + number * every, begin + number * every + length, correlation=number)
    return made


def test_a_device_that_is_busy_is_what_a_step_is_bound_by() -> None:
    """
    The evidence has the share.
    """
    bound = summarise(_steps(launch=0, begin=10, length=90, every=100).trace(), window=(0, 1000)).bound

    assert Side.DEVICE == bound.by
    assert "device 0 was busy 90.0% of the time" == bound.evidence[0]


def test_a_device_that_nothing_was_asked_of_waits_for_the_host() -> None:
    """
    Each kernel begins as soon as it is launched, and the device is idle up to then.
    """
    bound = summarise(_steps(launch=80, begin=85, length=10, every=100).trace(), window=(0, 1000)).bound

    assert Side.HOST == bound.by
    assert any("nothing asked of it 86.0%" in line for line in bound.evidence)


def test_idle_time_for_which_nobody_can_be_named_is_bound_by_nobody() -> None:
    """
    Where all had been launched long before (a dependency), and where the launches are not in the recording.
    """
    blocked = Timeline()
    for number in range(10):
        blocked.launch(number, number, number + 1)
        blocked.kernel("k", 50 + number * 100, 60 + number * 100, correlation=number)
    unlinked = Timeline()
    for number in range(10):
        unlinked.kernel("k", 50 + number * 100, 60 + number * 100, correlation=number)

    found = [summarise(made.trace(), window=(0, 1000)).bound for made in (blocked, unlinked)]
    assert [Side.UNKNOWN, Side.UNKNOWN] == [bound.by for bound in found]
    assert "neither busy for 80%" in found[0].evidence[-1]
    assert "the launch is recorded" in found[1].evidence[-1]


def _recordings() -> list[str]:
    if not DATA.is_dir():
        return []
    return sorted(name for name, fact in facts().items() if fact.get("n_events") and name.startswith("kineto/"))


@present
@pytest.mark.parametrize("name", _recordings())
def test_the_parts_of_every_shared_recording_add_up(name: str) -> None:
    """
    The wall is that of the facts, kernels and their busy time too, and parts sum up to the whole, to the nanosecond.
    """
    fact = facts()[name]
    summary = summarise(traces.open(DATA / name))
    known = fact.get("kernels", {})

    assert ns(fact["span_us"]) == summary.extent.wall_ns
    assert known.get("count", 0) == sum(one.count for one in summary.kernels)
    assert ns(known.get("sum_us", 0)) == sum(one.total_ns for one in summary.kernels)
    assert [[name, count, ns(us)] for name, count, us in known.get("top5_by_total_us", [])] == [
        [one.name, one.count, one.total_ns] for one in summary.kernels[:5]
    ]
    assert sum(one.own_ns for one in summary.operators) == summary.operator_ns
    assert sum(span.operator_ns for span in summary.spans) == summary.operator_ns - summary.unattributed_operator_ns
    spans = sum(span.device_ns for span in summary.spans)
    assert spans == summary.device_work_ns - summary.unattributed_device_ns
    assert sum(time for _, time in summary.attributed.values()) == summary.device_work_ns
    if (total := summary.device_time) is not None:
        assert ns(known.get("busy_us", 0)) == total.compute_ns + total.communication_exposed_ns
        assert total.wall_ns == total.busy_ns + total.idle_ns
        assert total.busy_ns == total.compute_ns + total.communication_exposed_ns + total.memory_exposed_ns
    named = sum(one.count for one in summary.collectives if one.on_device)
    assert named >= known.get("nccl_named", 0)


ROUNDED = 100
"""Nanoseconds by which the sums of Ascend's text files differ from their rows, which have three decimals."""


@present
@pytest.mark.parametrize(
    "folder",
    [
        "db_level0/rank0_ascend_pt",
        "db_level1/rank0_ascend_pt",
        "db_level1/rank1_ascend_pt",
        "st_level2_4rank_torch_npu2.7.1_cann8.3/rank_0_ascend_pt",
        "text_level0/rank0_ascend_pt",
        "text_level1/rank0_ascend_pt",
        "text_level1/rank1_ascend_pt",
    ],
)
def test_a_device_s_time_is_what_ascend_s_own_analysis_says(folder: str) -> None:
    """
    Computing, communication, and what of it overlaps: by another program, from the same events.
    """
    output = f"ascend/{folder}/ASCEND_PROFILER_OUTPUT"
    if told := facts().get(f"{output}/analysis.db", {}).get("StepTraceTime"):
        computing, exposed, overlapped, communication = told[0][-9:-5]
        slack = 0
    else:
        (row,) = facts()[f"{output}/step_trace_time.csv"]["step_rows"]
        names = ("Computing", "Communication(Not Overlapped)", "Overlapped", "Communication")
        computing, exposed, overlapped, communication = (float(row[name]) for name in names)
        slack = ROUNDED
    total = summarise(traces.open(DATA / "ascend" / folder)).device_time

    assert total is not None
    for microseconds, found in (
        (computing, total.compute_ns),
        (exposed, total.communication_exposed_ns),
        (overlapped, total.communication_overlapped_ns),
        (communication, total.communication_ns),
    ):
        assert abs(round(microseconds * 1000) - found) <= slack
