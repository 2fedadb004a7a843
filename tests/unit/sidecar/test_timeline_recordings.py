"""
Recordings of many profilers and releases, as windows of one step: nothing is lost, and the format's rules hold.
"""

import numpy as np
import pytest

from stepscope_sidecar import traces
from stepscope_sidecar.traces import Fault, Kind
from tests.unit.sidecar.merging import Run
from tests.unit.sidecar.recorded import present
from tests.unit.sidecar.traces import DATA, OPENED

pytestmark = present

SOUND = (
    "kineto/hta/a100_alexnet_2023-09.json.gz",
    "kineto/hta/a100_cuda_event_sync_multi_stream.json.gz",
    "kineto/hta/gp100_gpu_user_annotation_steps.json.gz",
    "kineto/hta/legacy_capitalised_cats_inference_rank_1.json.gz",
    "kineto/hta/mi250_rocm62_train.json.gz",
    "kineto/tracelens/h100_bert_small_torch2.6.json.gz",
    "generated/torch213_cpu_gloo_2rank/rank0.pt.trace.json.gz",
    "ascend/text_level0/rank0_ascend_pt",
    "ascend/db_level1/rank0_ascend_pt",
    "nsys/cloverleaf_cuda_a100_nsys2024.5.sqlite",
)

BROKEN = (
    "edge/derived/truncated_60pct.json",
    "edge/derived/empty.json",
    "edge/derived/not_json.json",
    "edge/derived/nan_inf_negative_in_kernels.json",
    "edge/derived/non_dict_and_partial_events.json",
    "edge/derived/ts_dur_as_strings.json",
    "edge/derived/missing_baseTimeNanoseconds_relative_ts.json.gz",
    "edge/torch213_real_output/invalid_quote_in_annotation_name.json",
    "edge/torch213_real_output/nonascii_names_become_unknown.json",
    "edge/upstream/hta_large_integer_rank-70.pt.trace.json.gz",
)


@pytest.mark.parametrize("name", SOUND)
def test_every_event_is_on_the_timeline_where_it_was(run: Run, name: str) -> None:
    """
    As many events of each name, with the same total time, at the same nanosecond; each call tied to what it started.
    """
    trace = traces.open(DATA / name)
    begin, end = int(trace.start_ns.min()), int(trace.end_ns.max())
    run.window(recording=DATA / name, opened_unix_ns=begin, closed_unix_ns=end)
    merged, timeline = run.merge()
    found = timeline.of("trainer 0", "", category="")
    lengths = sorted(int((one.end - one.start) * 1000) for one in found if one.category not in {"note", "missing"})

    assert sorted(trace.duration_ns.tolist()) == lengths
    assert begin == min(timeline.unix_ns(one.start) for one in found)
    assert {flag.reason for flag in trace.header.flags} <= {one.why.partition(": ")[2] for one in merged.missing}
    work = trace.rows(Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.COMMUNICATION)
    work = work[trace.on_device[work]]
    calls = trace.rows(Kind.RUNTIME, Kind.DRIVER)
    tied = int((np.isin(trace.correlation[work], trace.correlation[calls]) & (trace.correlation[work] >= 0)).sum())
    assert tied == merged.launches == len(timeline.flows)
    assert all(two.category in {"kernel", "gpu_memcpy", "gpu_memset", "communication"} for _, _, two in timeline.flows)


@pytest.mark.parametrize("name", BROKEN)
def test_what_can_be_read_of_a_broken_file_is_there_with_its_flags(run: Run, name: str) -> None:
    """
    Never an exception; each flag is a note on the timeline and is told.
    """
    trace = traces.open(DATA / name)
    placed = trace.header.clock == traces.Clock.EPOCH and len(trace)
    opened, closed = (int(trace.start_ns.min()), int(trace.end_ns.max())) if placed else (OPENED, OPENED + 1)
    run.window(recording=DATA / name, opened_unix_ns=opened, closed_unix_ns=closed)
    merged, timeline = run.merge()
    drawn = {one.args["reason"] for one in timeline.of("trainer 0", "missing")}

    assert trace.header.flags
    assert {f"{flag.fault}: {flag.reason}" for flag in trace.header.flags} <= drawn
    assert {one.why for one in merged.missing} == drawn
    assert len(trace) == len(timeline.slices) - len(timeline.of("trainer 0", "missing"))
    if trace.header.has(Fault.NO_EPOCH):
        assert any("it begins where its window does" in why for why in drawn)
