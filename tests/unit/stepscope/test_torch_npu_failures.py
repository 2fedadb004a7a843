"""
What goes wrong with Ascend's profiler: it is noticed, told, and never made worse. Against the stand-in.
"""

import gc
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stepscope.profilers import ForeignProfilerError, NoArtifactError, UnavailableError
from stepscope.profilers.torch_npu import TorchNpuProfiler
from tests.unit.stepscope.npu import elsewhere, part, window

pytestmark = pytest.mark.usefixtures("torch_npu_standin")


def test_a_start_that_has_no_effect_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Under msprof torch_npu starts nothing and says nothing: no window may believe that it records.
    """
    monkeypatch.setenv("PROFILING_MODE", "dynamic")
    profiler = TorchNpuProfiler()

    with pytest.raises(NoArtifactError, match="without a folder"):
        profiler.start(window(tmp_path / "w"))

    monkeypatch.delenv("PROFILING_MODE")
    profiler.start(window(tmp_path / "w"))
    assert profiler.stop(window(tmp_path / "w")).artifact


def test_what_a_start_raises_is_not_swallowed(tmp_path: Path) -> None:
    """
    torch_npu prints it and goes on; here it ends the window, leaves no folder, and the next window records.
    """
    faults = part("profiler.profiler").faults
    profiler = TorchNpuProfiler()
    request = window(tmp_path / "w")

    faults["start"] = RuntimeError("aclprofStart failed")
    with pytest.raises(RuntimeError, match="aclprofStart failed"):
        profiler.start(request)
    assert [] == list((tmp_path / "w").iterdir())

    faults.clear()
    profiler.start(request)
    assert profiler.stop(request).artifact


def test_a_stop_that_fails_is_the_last_of_this_process(tmp_path: Path) -> None:
    """
    Nobody knows what is on then: the session is never stopped again, not even when it is collected, and none is begun.
    """
    module = part("profiler.profiler")
    profiler = TorchNpuProfiler()
    request = window(tmp_path / "w")

    profiler.start(request)
    module.faults["stop"] = RuntimeError("aclprofStop failed")
    with pytest.raises(RuntimeError, match="aclprofStop failed"):
        profiler.stop(request)

    assert profiler.foreign()
    with pytest.raises(ForeignProfilerError, match="still on"):
        profiler.start(request)
    assert module.made[0].stopped


def test_no_other_thread_stops_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Neither by a stop, nor by giving it up, nor by collecting it as garbage: on a device that ends the process.
    """
    profiler = TorchNpuProfiler()
    request = window(tmp_path / "w")
    profiler.start(request)

    raised = elsewhere(lambda: profiler.stop(request))
    module = part("profiler.profiler")
    module.made.clear()
    elsewhere(gc.collect)

    assert [ForeignProfilerError] == [type(error) for error in raised]
    assert "" == capsys.readouterr().err
    assert not list((tmp_path / "w").glob("*/profiler_info*"))


def test_one_that_was_given_up_stays_on(tmp_path: Path) -> None:
    """
    No later window records in this process, and each says why.
    """
    profiler = TorchNpuProfiler()
    profiler.start(window(tmp_path / "w"))

    elsewhere(profiler.abandon)

    assert profiler.foreign()
    with pytest.raises(NoArtifactError):
        profiler.stop(window(tmp_path / "w"))
    with pytest.raises(ForeignProfilerError):
        profiler.start(window(tmp_path / "w"))


def test_somebody_elses_session_is_left_alone(tmp_path: Path) -> None:
    """
    It is noticed before a start, which is refused; afterwards windows record again.
    """
    profiler = TorchNpuProfiler()
    theirs = part("profiler").profile(on_trace_ready=lambda _: None)
    part("profiler").tensorboard_trace_handler(str(tmp_path / "theirs"))
    assert not profiler.foreign()

    theirs.start()
    assert profiler.foreign()
    with pytest.raises(ForeignProfilerError, match="already on"):
        profiler.start(window(tmp_path / "w"))
    theirs.stop()

    assert not profiler.foreign()
    profiler.start(window(tmp_path / "w"))
    assert not profiler.foreign()
    assert profiler.stop(window(tmp_path / "w")).artifact


def test_a_session_begun_inside_a_window_is_not_stopped(tmp_path: Path) -> None:
    """
    There is one profiler beneath: a stop would end the other's. The window ends, that recording goes on.
    """
    profiler = TorchNpuProfiler()
    profiler.start(window(tmp_path / "w"))
    part("profiler").tensorboard_trace_handler(str(tmp_path / "theirs"))
    theirs = part("profiler").profile(on_trace_ready=lambda _: None)
    theirs.start()

    with pytest.raises(ForeignProfilerError, match="inside the window"):
        profiler.stop(window(tmp_path / "w"))

    theirs.stop()
    assert list((tmp_path / "theirs").glob("*/profiler_info.json"))
    assert not list((tmp_path / "w").glob("*/profiler_info.json"))


def test_where_it_cannot_work_the_reason_is_said(
    torch_npu_standin: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    A boundary on changing threads, a process without a device, a torch_npu that cannot be imported.
    """
    profiler = TorchNpuProfiler()

    with pytest.raises(UnavailableError, match="by the thread that started it"):
        profiler.start(window(tmp_path / "w", roaming=True))
    monkeypatch.setattr(torch_npu_standin.npu, "available", False)
    with pytest.raises(UnavailableError, match="no NPU is available"):
        profiler.start(window(tmp_path / "w"))
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    with pytest.raises(UnavailableError, match="torch_npu cannot be imported"):
        profiler.prepare()

    assert not list((tmp_path / "w").iterdir())


def test_windows_open_on_the_thread_that_prepared(tmp_path: Path) -> None:
    """
    Preparing imports the profiler and makes no session; on any other thread than that, no start is tried.
    """
    profiler = TorchNpuProfiler()
    profiler.prepare()

    raised = elsewhere(lambda: profiler.start(window(tmp_path / "w")))

    assert [] == part("profiler.profiler").made
    assert ["torch_npu's profiler must be started by the thread that called init()"] == [str(one) for one in raised]
    profiler.start(window(tmp_path / "w"))
    assert profiler.stop(window(tmp_path / "w")).artifact
