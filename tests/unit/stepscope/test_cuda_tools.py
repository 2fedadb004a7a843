"""
The experimental tools for CUDA, against a stand-in for ``torch.cuda`` that takes what the real functions take.
"""

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stepscope.profilers import Armed, Registry, Request, UnavailableError, is_sync
from stepscope.profilers.cuda_range import ARTIFACT, CudaRange
from stepscope.profilers.torch_memory import MAX_ENTRIES, TorchMemory


class StandIn:
    """
    ``torch.cuda`` without a device: notes what is called, and refuses what the installed torch's signature refuses.
    """

    def __init__(self, *, available: bool = True, code: int = 0) -> None:
        self.calls: list[str] = []
        self.history: dict[str, object] = {}
        self.module = SimpleNamespace(
            cuda=SimpleNamespace(
                is_available=lambda: available,
                synchronize=self._note("synchronize"),
                check_error=self._check,
                cudart=lambda: SimpleNamespace(
                    cudaProfilerStart=self._note("start", code), cudaProfilerStop=self._note("stop", 0)
                ),
                nvtx=SimpleNamespace(
                    range_start=self._like(torch.cuda.nvtx.range_start, self._push),
                    range_end=self._like(torch.cuda.nvtx.range_end, lambda range_id: self.calls.append(f"{range_id}")),
                ),
                memory=SimpleNamespace(
                    _record_memory_history=self._like(torch.cuda.memory._record_memory_history, self._remember),
                    _dump_snapshot=self._like(torch.cuda.memory._dump_snapshot, self._dump),
                ),
            )
        )

    def _note(self, name: str, answer: int | None = None) -> Callable[[], int | None]:
        def call() -> int | None:
            self.calls.append(name)
            return answer

        return call

    def _like(self, real: Callable[..., object], stand_in: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            inspect.signature(real).bind(*arguments, **named)
            return stand_in(*arguments, **named)

        return call

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"CUDA error {code}")

    def _push(self, msg: str) -> int:
        self.calls.append(msg)
        return 7

    def _remember(self, **settings: object) -> None:
        self.calls.append("off" if settings.get("enabled", "all") is None else "on")
        self.history = settings

    def _dump(self, filename: str) -> None:
        self.calls.append("dump")
        Path(filename).write_bytes(b"snapshot")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """
    The stand-in, in torch's place.
    """
    found = StandIn()
    monkeypatch.setitem(sys.modules, "torch", found.module)
    return found


def request(folder: Path) -> Request:
    """
    A window in ``folder``.
    """
    return Request(window="w", level="spans", folder=folder)


def test_both_can_be_found_by_name_and_say_why_they_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Where torch sees no device, for example.
    """
    monkeypatch.setitem(sys.modules, "torch", StandIn(available=False).module)
    registry = Registry()
    for name in ("cuda_range", "torch_memory"):
        profiler = registry.find(name)
        assert profiler is not None
        assert is_sync(profiler)

        assert "no CUDA device that torch can use" == profiler.unavailable()
        with pytest.raises(UnavailableError):
            profiler.start(request(Path()))


def test_a_range_goes_from_start_to_stop_with_spans_in_between(cuda: StandIn, tmp_path: Path) -> None:
    """
    The device has finished before the end; what is left says when the range was, and of what.
    """
    profiler = CudaRange()
    assert Armed(level="spans") == profiler.start(request(tmp_path))
    profiler.describe({"stepscope.step": "5"})
    profiler.exit(profiler.enter("train #1"))
    recording = profiler.stop(request(tmp_path))
    note = json.loads((tmp_path / ARTIFACT).read_text())

    assert ["start", "train #1", "7", "synchronize", "stop"] == cuda.calls
    assert ARTIFACT == recording.artifact
    assert {"stepscope.step": "5"} == note["metadata"]
    assert 0 < note["began_unix_ns"] <= note["ended_unix_ns"]


def test_an_error_of_cuda_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And ends the window, as any profiler's does.
    """
    monkeypatch.setitem(sys.modules, "torch", StandIn(code=36).module)

    with pytest.raises(RuntimeError, match="CUDA error 36"):
        CudaRange().start(request(tmp_path))


def test_the_history_of_memory_is_kept_within_the_window_and_bounded(cuda: StandIn, tmp_path: Path) -> None:
    """
    The snapshot has its final name only when it is whole.
    """
    profiler = TorchMemory()
    assert not profiler.start(request(tmp_path)).marks
    assert MAX_ENTRIES == cuda.history["max_entries"]
    recording = profiler.stop(request(tmp_path))

    assert ["on", "dump", "off"] == cuda.calls
    assert [recording.artifact] == [path.name for path in tmp_path.iterdir()]


def test_no_history_is_kept_after_a_stop_that_fails(cuda: StandIn, tmp_path: Path) -> None:
    """
    It would grow until the process ends.
    """
    profiler = TorchMemory()
    profiler.start(request(tmp_path))
    with pytest.raises(FileNotFoundError):
        profiler.stop(request(tmp_path / "gone"))

    assert "off" == cuda.calls[-1]


def test_a_window_that_is_not_kept_writes_nothing(cuda: StandIn, tmp_path: Path) -> None:
    """
    Its history ends all the same.
    """
    profiler = TorchMemory()
    profiler.start(request(tmp_path))
    profiler.stop(request(tmp_path), keep=False)

    assert ["on", "off"] == cuda.calls
    assert [] == list(tmp_path.iterdir())
