"""
Fixtures of more than one module.
"""

import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stepscope import wire
from stepscope.connection import Connection
from stepscope.profilers import cann, torch_npu
from stepscope.testing import Captured, capture_spans
from tests.standins.inference import StandInSglang, StandInVllm
from tests.unit.stepscope import npu
from tests.unit.stepscope.connecting import register
from tests.unit.stepscope.desk import Rig
from tests.unit.stepscope.fake_profiler import FakeProfiler
from tests.unit.stepscope.fake_sidecar import PATIENCE, FakeSidecar


@pytest.fixture
def captured() -> Iterator[Captured]:
    """
    A trainer of rank 0 before its first step.
    """
    with capture_spans() as spans:
        yield spans


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """
    Windows with a profiler that any thread may stop.
    """
    rig = Rig(tmp_path)
    yield rig
    rig.windows.end(version=0, timeout=5)


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Rig]:
    """
    Windows with a profiler that belongs to its thread.
    """
    rig = Rig(tmp_path, FakeProfiler(thread_bound=True))
    yield rig
    rig.windows.end(version=0, timeout=5)


@pytest.fixture
def no_torch_npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """
    No torch_npu before and after, no CANN, no other tool's variables, no recording left on.
    """
    monkeypatch.setattr(torch_npu, "_owner", threading.Lock())
    monkeypatch.setattr(torch_npu, "_kept", [])
    for name in (*cann.OTHERS, "LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cann, "LOADER_CACHE", Path("/nonexistent"))
    with npu.absent():
        yield


@pytest.fixture
def torch_npu_standin(no_torch_npu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """
    The stand-in is installed, and CANN is said to be.
    """
    monkeypatch.syspath_prepend(npu.STANDINS)
    (tmp_path / "cann" / "lib64").mkdir(parents=True)
    (tmp_path / "cann" / "lib64" / cann.RUNTIME).touch()
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "cann"))
    return importlib.import_module("torch_npu")


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[StandInVllm]:
    """
    A stand-in for vLLM's server.
    """
    with StandInVllm(tmp_path / "server") as server:
        yield server


@pytest.fixture
def sglang() -> Iterator[StandInSglang]:
    """
    A stand-in for SGLang's.
    """
    with StandInSglang() as server:
        yield server


@pytest.fixture
def heard() -> list[wire.Message]:
    """
    What the connection handed on.
    """
    return []


@pytest.fixture
def connection(tmp_path: Path, heard: list[wire.Message]) -> Iterator[Connection]:
    """
    A connection that looks for its sidecar, quickly.
    """
    made = Connection(tmp_path / "s", register=register, heard=heard.append, deadline=PATIENCE, retry=0.01)
    made.start()
    yield made
    made.close()


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[FakeSidecar]:
    """
    A sidecar that answers.
    """
    with FakeSidecar(tmp_path / "s", tmp_path) as fake:
        yield fake
