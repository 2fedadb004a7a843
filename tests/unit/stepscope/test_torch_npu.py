"""
The driver of Ascend's profiler, against a stand-in that has the real wheel's signatures and no device.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from stepscope.names import Level
from stepscope.profilers import Armed, Registry
from stepscope.profilers.torch_npu import TorchNpuProfiler
from tests.unit.stepscope.npu import STANDINS, elsewhere, part, window

pytestmark = pytest.mark.usefixtures("no_torch_npu")


@pytest.mark.parametrize(
    ("level", "activities", "profiler_level", "metrics", "marks", "details"),
    [
        (Level.DEVICE, ["NPU"], "Level0", "ACL_AICORE_NONE", False, False),
        (Level.SPANS, ["NPU"], "Level0", "ACL_AICORE_NONE", True, False),
        (Level.OPS, ["CPU", "NPU"], "Level1", "ACL_AICORE_NONE", True, False),
        (Level.FULL, ["CPU", "NPU"], "Level2", "ACL_AICORE_PIPE_UTILIZATION", True, True),
    ],
)
@pytest.mark.usefixtures("torch_npu_standin")
def test_what_each_level_records(
    tmp_path: Path,
    level: Level,
    activities: list[str],
    profiler_level: str,
    metrics: str,
    marks: bool,
    details: bool,
) -> None:
    """
    Device activity is in every level; operators, shapes and counters come with the higher ones, stacks with none.
    """
    profiler = TorchNpuProfiler()
    request = window(tmp_path / "w", level)

    armed = profiler.start(request)
    profiler.stop(request)

    given = part("profiler.profiler").made[-1].given
    config = given.experimental_config
    assert Armed(level=level, thread_bound=True, all_threads=True, marks=marks) == armed
    assert activities == [activity.name for activity in given.activities]
    assert (profiler_level, metrics, marks) == (config._profiler_level, config._aic_metrics, config._mstx)
    assert ["db"] == config._export_type
    assert (details, details, False) == (given.record_shapes, given.profile_memory, given.with_stack)


@pytest.mark.usefixtures("torch_npu_standin")
def test_stacks_are_had_by_asking_for_them(tmp_path: Path) -> None:
    """
    A program that registers the profiler with stacks gets them, at level full alone.
    """
    profiler = TorchNpuProfiler(stacks=True)
    for level in (Level.OPS, Level.FULL):
        request = window(tmp_path / level, level)
        profiler.start(request)
        profiler.stop(request)

    assert [False, True] == [session.given.with_stack for session in part("profiler.profiler").made]


@pytest.mark.usefixtures("torch_npu_standin")
def test_a_recording_is_a_raw_folder_with_our_labels(tmp_path: Path) -> None:
    """
    It lies in the window's folder under torch_npu's own name, is not analysed, and says which window it is of.
    """
    profiler = TorchNpuProfiler()
    request = window(tmp_path / "w")

    profiler.start(request)
    profiler.describe({"stepscope.step": "5", "stepscope.run": 'a"b'})
    recording = profiler.stop(request)

    folder = tmp_path / "w" / recording.artifact
    assert [folder] == list((tmp_path / "w").iterdir())
    assert folder.name.startswith(f"rank3_{os.getpid()}_")
    assert folder.name.endswith("_ascend_pt")
    assert (folder / "profiler_info.json").is_file()
    assert not (folder / "ASCEND_PROFILER_OUTPUT").exists()
    metadata = json.loads((folder / "profiler_metadata.json").read_text())
    assert ("5", "a%22b") == (metadata["stepscope.step"], metadata["stepscope.run"])
    assert "ENV_VARIABLES" not in metadata
    assert {"stop"} == set(recording.stall)


@pytest.mark.usefixtures("torch_npu_standin")
def test_spans_are_ranges_of_mstx(tmp_path: Path) -> None:
    """
    A mark is begun and ended on the host, on any thread; what was not begun is not ended.
    """
    profiler = TorchNpuProfiler()
    request = window(tmp_path / "w")

    profiler.start(request)
    handle = profiler.enter("train.update_actor #0000000000000001")
    assert [] == elsewhere(lambda: profiler.exit(handle))
    profiler.exit(profiler.enter(""))
    profiler.stop(request)

    assert None is profiler.enter("too late")
    assert [("start", "train.update_actor #0000000000000001"), ("end", handle)] == part("npu.mstx").marks


@pytest.mark.usefixtures("torch_npu_standin")
def test_what_is_not_to_be_kept_leaves_nothing(tmp_path: Path) -> None:
    """
    The folder goes, and the next window can record.
    """
    profiler = TorchNpuProfiler()
    request = window(tmp_path / "w")

    profiler.start(request)
    recording = profiler.stop(request, keep=False)
    profiler.start(request)

    assert "" == recording.artifact
    assert profiler.stop(request).artifact


def test_without_torch_npu_it_is_unavailable() -> None:
    """
    It is said, and nothing is imported to find out; the registry has it among its tools.
    """
    assert "torch_npu is not installed" == TorchNpuProfiler().unavailable()
    assert "torch_npu is not installed" == Registry().tools()["torch_npu"]
    assert "torch_npu" not in sys.modules


def test_without_cann_it_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Installed alone it cannot be imported, so it is not tried.
    """
    monkeypatch.syspath_prepend(STANDINS)

    why = TorchNpuProfiler().unavailable()

    assert why is not None
    assert "not CANN (libascendcl.so is not found" in why
    assert "torch_npu" not in sys.modules


@pytest.mark.usefixtures("torch_npu_standin")
def test_another_tools_process_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where msprof has the devices, the profiler is unavailable and says so.
    """
    assert None is TorchNpuProfiler().unavailable()

    monkeypatch.setenv("PROFILING_MODE", "dynamic")

    assert "PROFILING_MODE is set: this process is msprof's to profile" == TorchNpuProfiler().unavailable()
