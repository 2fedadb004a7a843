"""
The verdict on recordings: complete, or what is missing and how much of it; on made-up and on recorded ones.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar.artifacts import Artifact, Verdict, engine, kineto
from stepscope_sidecar.jobs import Job
from tests.unit.sidecar import devices, traces

EAGER = (
    "hta/a100_2gpu_rank0_nccl.json.gz",
    "tracelens/h100_qwen1.5_0.5b_torch2.6.json.gz",
    "tracelens/mi210_gpu_only.json.gz",
)
"""CUDA and ROCm; in the second some kernels' launches came before the recording."""

GRAPHS = ("tracelens/mi_sglang_qwen3_8b_decode_graph.json.gz", "tracelens/mi_vllm_prefilldecode_piecewise.json.gz")

needs_data = pytest.mark.skipif(not traces.DATA.is_dir(), reason="the shared recordings are not beside this repository")


def made(folder: Path, data: bytes, **changes: Any) -> Artifact:
    """
    The artifact of ``data``, a trace by this package's profiler.
    """
    return kineto.make(Job(folder=traces.put(folder, data), closed=traces.closed(**changes), pid=traces.PID))


def of_a_recorded(folder: Path, data: bytes) -> Verdict:
    """
    The verdict on recorded ``data``, of which no window is known: it has no marks of ours, and is of another time.
    """
    return made(folder, data, mirrored=[], opened_unix_ns=0, closed_unix_ns=0).verdict


def test_a_whole_recording_is_complete(tmp_path: Path) -> None:
    """
    All marks, all kernels, and on for as long as the window.
    """
    assert Verdict(complete=True) == made(tmp_path, devices.trace(devices.launches(range(1, 50)))).verdict


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (range(1, 6), "kernels_missing_head"),
        (range(46, 51), "kernels_missing_tail"),
        (range(20, 25), "kernels_missing"),
    ],
)
def test_missing_kernels_are_told_with_their_share(tmp_path: Path, missing: range, reason: str) -> None:
    """
    Of the launches, those without anything on the device; the reason says at which end, where it is one.
    """
    found = made(tmp_path, devices.trace(devices.launches(range(1, 51), missing=missing))).verdict

    assert (False, reason, 0.1) == (found.complete, found.reason, found.share)
    assert "5 of 50 launches have nothing on the device" in found.detail


@pytest.mark.parametrize(
    ("opened", "closed", "reason", "share"),
    [(-500, 0, "gap_head", 0.2), (0, 2_000, "gap_tail", 0.5), (-50, 50, "", None), (100, -100, "", None)],
)
def test_a_recording_shorter_than_its_window_has_a_gap(
    tmp_path: Path, opened: int, closed: int, reason: str, share: float | None
) -> None:
    """
    By what the profiler says of when it was on; a tenth of a second is no gap. The window is moved, in ms.
    """
    window = {
        "opened_unix_ns": traces.OPENED + opened * 1_000_000,
        "closed_unix_ns": traces.CLOSED + closed * 1_000_000,
    }

    found = made(tmp_path, devices.trace([]), **window).verdict

    assert reason == found.reason
    assert share is None or found.share == pytest.approx(share, abs=0.001)


def test_a_profiler_without_room_is_truncated(tmp_path: Path) -> None:
    """
    Kineto notes in its file when the device's buffers were full; nothing else shows it.
    """
    note = "INFO:2026 CuptiActivityProfiler.cpp:333] Record counts: Out-of-range = 4181, CUPTI stopped early? = {}"

    full, fine = (made(tmp_path / str(flag), devices.trace([], INFO=[note.format(flag)])).verdict for flag in (1, 0))

    assert (False, "truncated", None) == (full.complete, full.reason, full.share)
    assert fine.complete


def test_what_says_nothing_of_itself_is_unknown(tmp_path: Path) -> None:
    """
    Without marks, and without the profiler's word on when it was on, nobody can know.
    """
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 1}]

    found = made(tmp_path, json.dumps({"traceEvents": events}).encode(), mirrored=[]).verdict

    assert Verdict(complete=None) == found


def test_all_that_is_missing_is_named(tmp_path: Path) -> None:
    """
    The reason is the first of them; the detail has all.
    """
    data = devices.trace(devices.launches(range(1, 51), missing=range(1, 6)))

    found = made(tmp_path, data, mirrored=[traces.SPAN, "f" * 16], opened_unix_ns=traces.OPENED - 10**9).verdict

    assert ("markers_missing", 0.5) == (found.reason, found.share)
    assert ["markers_missing", "kernels_missing_head", "gap_head"] == [
        part.partition(":")[0] for part in found.detail.split("; ")
    ]


def test_the_files_of_an_engines_workers_are_judged_together(tmp_path: Path) -> None:
    """
    Launches are added up; the worker that began last and the one that ended first make the gap.
    """
    folder = tmp_path / "vllm"
    traces.put(folder, devices.trace(devices.launches(range(1, 51), missing=range(1, 6))), name="rank0.json")
    traces.put(folder, devices.trace(devices.launches(range(1, 51))), name="rank1.json")
    job = Job(folder=tmp_path, closed=traces.closed(artifact="vllm"), pid=1, tool="vllm")

    found = engine.make(job).verdict

    assert (False, "kernels_missing_head", 0.05) == (found.complete, found.reason, found.share)


HEAD: Callable[[list[int], int], list[int]] = lambda ids, count: ids[:count]  # noqa: E731 - a parameter, named
TAIL: Callable[[list[int], int], list[int]] = lambda ids, count: ids[-count:]  # noqa: E731 - a parameter, named
MIDDLE: Callable[[list[int], int], list[int]] = lambda ids, count: ids[len(ids) // 3 :][:count]  # noqa: E731 - the same


@needs_data
@pytest.mark.parametrize("name", [*EAGER, *GRAPHS])
@pytest.mark.parametrize(
    ("place", "reason"), [(HEAD, "kernels_missing_head"), (MIDDLE, "kernels_missing"), (TAIL, "kernels_missing_tail")]
)
def test_the_share_of_a_recording_is_what_was_taken_out(
    tmp_path: Path, name: str, place: Callable[[list[int], int], list[int]], reason: str
) -> None:
    """
    Real recordings, out of which the kernels of some launches are taken at the head, the middle or the tail.
    """
    whole = devices.recorded(name)
    ids = devices.launched(whole)
    taken = place(ids, max(3, len(ids) // 10))

    found = of_a_recorded(tmp_path, devices.without(whole, set(taken)))

    assert (False, reason) == (found.complete, found.reason)
    assert len(taken) / len(ids) == found.share


@needs_data
def test_a_recording_as_it_was_made_has_its_own_truth(tmp_path: Path) -> None:
    """
    Nothing is missing where independent facts match every kernel to its launch; a recording of counters alone, whose
    kernels nobody recorded, has lost them all.
    """
    facts = json.loads((traces.DATA / "facts.json").read_text())
    checked = 0
    for number, path in enumerate(sorted((traces.DATA / "kineto").rglob("*.json*"))):
        fact = facts[str(path.relative_to(traces.DATA))]
        name = str(path.relative_to(traces.DATA / "kineto"))
        if not fact.get("kernels", {}).get("count") and "range" not in name:
            continue
        folder = traces.put(tmp_path / str(number), path.read_bytes())
        launched = kineto.finalise(folder, traces.closed(), pid=1).launched
        checked += 1
        if "range" in name:
            assert (77, 77) == (launched.count, launched.missing)
            continue
        assert 0 == launched.missing, path
        if name not in GRAPHS:
            assert fact["kernels"]["correlation_matched_to_runtime"] == launched.count, path

    assert checked > 15
