"""
What devices did for each span: found by one way after the other, and adding up to the whole.
"""

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope_sidecar import traces
from stepscope_sidecar.traces import NONE, Kind, Trace
from stepscope_sidecar.traces.attribution import Attribution, attribute
from stepscope_sidecar.traces.marks import Mark
from stepscope_sidecar.traces.ties import How
from tests.unit.sidecar.recorded import facts, present
from tests.unit.sidecar.timelines import Timeline, ids
from tests.unit.sidecar.traces import DATA

ANNOTATED = (
    "hta/a100_2gpu_rank0_nccl.json.gz",
    "hta/a100_alexnet_2023-09.json.gz",
    "hta/gp100_gpu_user_annotation_steps.json.gz",
    "hta/multirank_128gpu/sampled_rank-0.json.gz",
    "hta/v100_ns_resolution_rank-0.pt.trace.json.gz",
    "tracelens/mi300_normalization_layers.json.gz",
    "tracelens/mi_sglang_qwen3_8b_decode_graph.json.gz",
    "tracelens/mi_vllm_prefilldecode_piecewise.json.gz",
)
"""Recordings below ``kineto`` with annotations and kernels, of CUDA and ROCm, with graphs and without."""

BELIEVED = {
    "hta/a100_2gpu_rank0_nccl.json.gz": True,
    "hta/a100_alexnet_2023-09.json.gz": False,
    "hta/gp100_gpu_user_annotation_steps.json.gz": False,
    "hta/multirank_128gpu/sampled_rank-0.json.gz": False,
    "hta/v100_ns_resolution_rank-0.pt.trace.json.gz": True,
    "kineto_samples/tb_gpu_metrics_input_2021.json": True,
    "tracelens/h100_qwen1.5_0.5b_torch2.6.json.gz": True,
    "tracelens/mi300_bert_small.json.gz": True,
}
"""Whether the External ids of kernels are operators'; those of 2022 to 2024-02 are not."""


def _how(found: Attribution) -> dict[str, tuple[str, How]]:
    return {
        found.trace.name_of(row): ("" if owner == NONE else found.trace.name_of(owner).split(" #")[0], How(how))
        for row, owner, how in zip(found.rows.tolist(), found.owner.tolist(), found.how.tolist(), strict=True)
    }


def test_a_kernel_belongs_to_the_innermost_span_in_which_it_was_launched() -> None:
    """
    Whenever it ran; a launch in no span, and one that came before the recording, are told apart.
    """
    made = Timeline().mark("step", 1, 0, 100).mark("update", 2, 20, 50)
    made.launch(11, 10, 12).launch(12, 25, 27).launch(13, 120, 121)
    made.kernel("in step", 60, 70, correlation=11).kernel("in update", 70, 90, correlation=12)
    made.kernel("in none", 130, 131, correlation=13).kernel("earlier", 1, 5, correlation=3)
    made.kernel("lost", 140, 142, correlation=99).kernel("without an id", 150, 151)
    found = attribute(made.trace())

    assert {
        "in step": ("step", How.CORRELATION),
        "in update": ("update", How.CORRELATION),
        "in none": ("", How.OUTSIDE),
        "earlier": ("", How.BEFORE),
        "lost": ("", How.UNTIED),
        "without an id": ("", How.UNTIED),
    } == _how(found)
    step, update = found.spans()
    assert (10, 30, 1, 2) == (step.own_ns, step.total_ns, step.own_count, step.count)
    assert (20, 20) == (update.own_ns, update.total_ns)
    assert (38, 8) == (found.total_ns, found.unattributed_ns)
    assert {How.CORRELATION: (2, 30), How.OUTSIDE: (1, 1), How.BEFORE: (1, 4), How.UNTIED: (2, 3)} == found.by_reason()


def test_all_kernels_of_a_graph_belong_where_it_was_launched() -> None:
    """
    One call has many kernels; a copy and a fill count as work, waiting does not.
    """
    made = Timeline().mark("decode", 1, 0, 10).launch(5, 2, 3, name="cudaGraphLaunch")
    made.kernel("a", 20, 30, correlation=5).kernel("b", 30, 40, correlation=5, stream=8)
    made.work(Kind.MEMCPY, "c", 40, 41, correlation=5).work(Kind.SYNC, "wait", 41, 90, correlation=5)
    found = attribute(made.trace())

    assert dict.fromkeys("abc", ("decode", How.CORRELATION)) == _how(found)
    assert [True, True, True] == found.graph.tolist()


def test_overlapping_work_counts_twice_as_work_and_once_as_busy_time() -> None:
    """
    Streams of one device run side by side; two devices are two.
    """
    made = Timeline().mark("step", 1, 0, 10)
    for number, (start, end, device, stream) in enumerate([(0, 10, 0, 7), (5, 15, 0, 8), (0, 10, 1, 7)], start=1):
        made.launch(number, number, number).kernel("k", start, end, correlation=number, device=device, stream=stream)
    found = attribute(made.trace())
    [step] = found.spans()

    assert (30, 25) == (step.own_ns, step.busy_ns)
    assert 15 == found.time(step.mark).total


def test_where_a_call_is_missing_the_operator_with_its_external_id_counts() -> None:
    """
    A profiler that lost the call has kept the operator.
    """
    made = Timeline().mark("step", 1, 0, 100).operator("aten::mm", 10, 20, external=4)
    made.launch(50, 1, 2).kernel("mm", 30, 40, correlation=51, external=4)

    assert {"mm": ("step", How.EXTERNAL_ID)} == _how(attribute(made.trace()))


def test_external_ids_that_are_correlations_are_not_believed() -> None:
    """
    From 2022 to 2024-02 they could name an operator by accident.
    """
    made = Timeline().mark("step", 1, 0, 100).operator("unrelated", 10, 20, external=51).launch(60, 1, 2)
    made.kernel("mm", 30, 40, correlation=51, external=51)
    found = attribute(made.trace())

    assert not found.external_ids_believed
    assert {"mm": ("", How.BEFORE)} == _how(found)


def test_what_a_device_shows_of_a_span_counts_last() -> None:
    """
    From its first to its last kernel on a stream; the inner of two, and on no other stream. A name that two
    annotations have tells nothing.
    """
    made = Timeline().mark("step", 1, 0, 100).mark("update", 2, 20, 50)
    made.work(Kind.DEVICE_ANNOTATION, f"step #{1:016x}", 200, 300)
    made.work(Kind.DEVICE_ANNOTATION, f"update #{2:016x}", 220, 250)
    made.kernel("in step", 210, 215).kernel("in update", 220, 250).kernel("elsewhere", 220, 230, stream=8)
    made.kernel("half", 295, 305)

    expected = {"in step": ("step", How.CONTAINMENT), "in update": ("update", How.CONTAINMENT)}
    assert {**expected, "elsewhere": ("", How.UNTIED), "half": ("", How.UNTIED)} == _how(attribute(made.trace()))


def test_a_thread_without_spans_works_for_the_one_that_its_process_is_in() -> None:
    """
    Autograd launches from its own thread. Where spans of two threads are open side by side, neither counts.
    """
    made = Timeline().mark("step", 1, 0, 100).mark("update", 2, 10, 50).mark("publish", 3, 40, 90, thread=8)
    made.launch(1, 20, 21, thread=9).launch(2, 45, 46, thread=9).launch(3, 60, 61, thread=9)
    for number, name in enumerate(("backward", "unclear", "in publish"), start=1):
        made.kernel(name, 200, 210, correlation=number)
    found = attribute(made.trace())

    expected = {"backward": ("update", How.CORRELATION), "unclear": ("", How.OUTSIDE)}
    assert {**expected, "in publish": ("publish", How.CORRELATION)} == _how(found)
    assert [True, False, True] == found.other_thread.tolist()


def test_spans_that_run_side_by_side_on_an_event_loop_are_told_apart_by_their_parents() -> None:
    """
    A kernel that is launched while two requests are open belongs to what they have in common.
    """
    made = Timeline().mark("step", 1, 0, 100).mark("request", 2, 10, 60).mark("request", 3, 20, 40)
    made.launch(1, 15, 16).launch(2, 30, 31)
    made.kernel("of one", 200, 210, correlation=1).kernel("of both", 210, 220, correlation=2)
    step, one, other = ids(1, 2, 3)

    assert {"of one": ("request", How.CORRELATION), "of both": ("step", How.CORRELATION)} == _how(
        attribute(made.trace(), parents={one: step, other: step})
    )


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 30)] * 4), max_size=30), st.lists(st.tuples(*[st.integers(0, 30)] * 2)))
def test_the_parts_add_up_to_the_whole(work: list[tuple[int, int, int, int]], spans: list[tuple[int, int]]) -> None:
    """
    However calls, kernels and spans lie, in whole nanoseconds.
    """
    made = Timeline()
    for number, (start, length) in enumerate(spans, start=1):
        made.mark("s", number, start, start + length, thread=number % 3)
    for called, start, length, correlation in work:
        made.launch(correlation, called, called, thread=called % 4)
        made.kernel("k", start, start + length, correlation=correlation // 2 + called % 2)
    found = attribute(made.trace())

    assert found.total_ns == found.unattributed_ns + sum(span.own_ns for span in found.spans())
    assert found.total_ns == sum(length for _, length in found.by_reason().values())
    assert all(span.busy_ns <= span.total_ns for span in found.spans())


@present
@pytest.mark.parametrize("name", ANNOTATED)
def test_device_time_of_annotations_is_what_the_file_itself_says(name: str) -> None:
    """
    Against a reading of the file of its own: the call with the kernel's correlation, and the annotation that began last
    of those that are open there; kernels of one graph all count where it was launched.
    """
    trace = traces.open(DATA / "kineto" / name)
    spans = _annotations(trace)
    found = attribute(trace, spans=spans)
    own = {(trace.name_of(one.mark.row), one.mark.start_ns): one.own_ns for one in found.spans() if one.own_ns}
    fact = facts()[f"kineto/{name}"]["kernels"]
    kernels = trace.kind[found.rows] == Kind.KERNEL

    assert _independently(name) == own
    assert fact["correlation_matched_to_runtime"] == int((kernels & (found.how != How.BEFORE)).sum())
    assert found.total_ns == found.unattributed_ns + sum(one.own_ns for one in found.spans())
    assert not found.other_thread.any()
    if "graph" in name:
        assert 544 == found.graph.sum()


@present
@pytest.mark.parametrize(("name", "believed"), BELIEVED.items())
def test_whether_external_ids_are_believed_depends_on_the_release(name: str, believed: bool) -> None:
    """
    As many kernels as the facts say find an operator by them; in some releases that is an accident.
    """
    trace = traces.open(DATA / "kineto" / name)
    rows, hosts = trace.rows(Kind.KERNEL), trace.rows(Kind.CPU_OP, Kind.ANNOTATION)
    ids_ = trace.external_id[rows]
    matched = np.isin(ids_, trace.external_id[hosts]) & (ids_ != NONE)

    assert believed == attribute(trace).external_ids_believed
    assert facts()[f"kineto/{name}"]["kernels"]["external_id_matched_to_cpu_op"] == matched.sum()


@present
@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("kineto_samples/toplevel_list_resnet50_2020-12_worker0.pt.trace.json.gz", 765),
        ("tracelens/h100_qwen1.5_0.5b_torch2.6.json.gz", 509),
    ],
)
def test_kernels_launched_before_the_recording_are_counted_as_such(name: str, before: int) -> None:
    """
    In these two, and none of them is lost: kernels without a call are all from before.
    """
    found = attribute(traces.open(DATA / "kineto" / name))
    fact = facts()[f"kineto/{name}"]["kernels"]
    early = (found.how == How.BEFORE) & (found.trace.kind[found.rows] == Kind.KERNEL)

    assert before == found.by_reason()[How.BEFORE][0]
    assert fact["count"] - fact["correlation_matched_to_runtime"] == early.sum()


@present
@pytest.mark.parametrize("name", ["text_level1/rank0_ascend_pt", "db_level1/rank0_ascend_pt"])
def test_what_a_step_cost_on_ascend_is_known_from_flows_and_from_connections(name: str) -> None:
    """
    All computations and collectives were asked for by operators of the step, some on autograd's thread.
    """
    trace = traces.open(DATA / "ascend" / name)
    found = attribute(trace, spans=_annotations(trace, steps=True))
    [step] = found.spans()
    mattering = np.isin(trace.kind[found.rows], (Kind.KERNEL, Kind.COMMUNICATION))

    assert {step.mark.row} == set(found.owner[mattering].tolist())
    assert found.other_thread.any()
    assert step.own_ns == found.total_ns - found.unattributed_ns


def _annotations(trace: Trace, *, steps: bool = False) -> list[Mark]:
    rows = trace.rows(Kind.ANNOTATION)
    rows = rows[np.lexsort((rows, -trace.duration_ns[rows], trace.start_ns[rows]))]
    return [
        Mark(
            row=row,
            name=trace.name_of(row),
            span_id="",
            start_ns=int(trace.start_ns[row]),
            end_ns=int(trace.end_ns[row]),
        )
        for row in rows.tolist()
        if steps or not trace.name_of(row).startswith("ProfilerStep")
    ]


def _independently(name: str) -> dict[tuple[str, int], int]:
    """
    Device time by annotation, from the file by the standard library alone.
    """
    told: Any = json.loads(gzip.decompress((DATA / "kineto" / name).read_bytes()), parse_float=Decimal)
    base = int(told.get("baseTimeNanoseconds", 0))
    whole = [event for event in told["traceEvents"] if event.get("ph") == "X"]
    calls: dict[int, tuple[Any, Any, Any]] = {}
    spans = defaultdict(list)
    for event in whole:
        place = (event["pid"], event["tid"])
        if event["cat"] in {"cuda_runtime", "cuda_driver"}:
            known = calls.get(event["args"].get("correlation"))
            if known is None or event["ts"] < known[2]:
                calls[event["args"].get("correlation")] = (*place, event["ts"])
        elif event["cat"] == "user_annotation" and not event["name"].startswith("ProfilerStep"):
            spans[place].append((event["ts"], -event["dur"], event["name"]))
    found: dict[tuple[str, int], int] = defaultdict(int)
    for event in whole:
        if event["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"} and event["args"]["correlation"] in calls:
            pid, tid, at = calls[event["args"]["correlation"]]
            around = [span for span in spans[pid, tid] if span[0] <= at < span[0] - span[1]]
            if around:
                start, _, label = max(around, key=lambda span: (span[0], span[1]))
                found[label, base + int(start * 1000)] += int(event["dur"] * 1000)
    return {span: length for span, length in found.items() if length}
