"""
The driver of vLLM's profiler against a stand-in for ``AsyncLLM`` that does what 0.32 does; a real one is in
``tests/vllm``.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from stepscope.profilers import ForeignProfilerError, LostError, NoArtifactError, Registry, Request, UnavailableError
from stepscope.profilers.sessions import UnansweredError
from stepscope.profilers.vllm import VllmProfiler

T = TypeVar("T")

SHORT = 1.0
"""Seconds of a deadline that is meant to pass."""


class ProfilerAlreadyActiveError(Exception):
    """
    Called as vLLM's is.
    """


class EngineDeadError(Exception):
    """
    Called as vLLM's is.
    """


class StandIn:
    """
    Refuses a second start until a stop was seen through; says nothing of a start that failed.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        told = {"profiler": "torch", "torch_profiler_dir": str(folder), **settings}
        self.vllm_config = SimpleNamespace(profiler_config=SimpleNamespace(**told))
        self.folder = folder
        self.calls: list[str] = []
        self.active = False
        self.prefix = ""
        self.ranks = 1
        self.fails = False
        self.hold: asyncio.Event | None = None
        self.error: Exception | None = None
        self.lock = asyncio.Lock()

    async def start_profile(self, profile_prefix: str | None = None) -> None:
        """
        Start.
        """
        self.calls.append(f"start {profile_prefix}")
        async with self.lock:
            if self.active:
                raise ProfilerAlreadyActiveError
            self.active, self.prefix = True, profile_prefix or ""
            await self._wait()

    async def stop_profile(self) -> None:
        """
        Write, and stop.
        """
        self.calls.append("stop")
        async with self.lock:
            await self._wait()
            if self.active and not self.fails:
                for rank in range(self.ranks):
                    (self.folder / f"{self.prefix}_rank{rank}.7.pt.trace.json").write_text("{}")
                    (self.folder / f"{self.prefix}_rank{rank}.profiler_out.txt").write_text("a table")
            self.active = False

    async def _wait(self) -> None:
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error


@pytest.fixture
def engine(tmp_path: Path) -> StandIn:
    """
    One that writes into a folder of its own.
    """
    (tmp_path / "engine").mkdir()
    return StandIn(tmp_path / "engine")


def asked(folder: Path, name: str = "000003-rollouter-0-77-vllm-abc") -> Request:
    """
    A window.
    """
    (folder / name).mkdir(exist_ok=True)
    return Request(window=name, level="spans", folder=folder / name)


def run(work: Coroutine[Any, Any, T]) -> T:
    """
    What ``work`` comes to.
    """
    return asyncio.run(asyncio.wait_for(work, 20))


def test_windows_leave_their_traces_and_nothing_else(engine: StandIn, tmp_path: Path) -> None:
    """
    One worker leaves a file, several a folder of files; the tables beside them are removed.
    """
    profiler, first, second = VllmProfiler(engine), asked(tmp_path, "000001-a"), asked(tmp_path, "000002-b")

    async def work() -> list[str]:
        left = []
        for window, engine.ranks in ((first, 1), (second, 2)):
            armed = await profiler.start(window)
            left.append((await profiler.stop(window)).artifact)
            assert ("ops", "spans", False) == (armed.level, armed.fallback, armed.marks)
        return left

    assert ["000001-a_rank0.7.pt.trace.json", "traces"] == run(work())
    assert ["start 000001-a", "stop", "start 000002-b", "stop"] == engine.calls
    assert 2 == len(list((second.folder / "traces").iterdir()))
    assert [] == list(engine.folder.iterdir())


def test_a_window_that_is_not_kept_leaves_nothing(engine: StandIn, tmp_path: Path) -> None:
    """
    Its span never began.
    """
    profiler, window = VllmProfiler(engine), asked(tmp_path)

    async def work() -> str:
        await profiler.start(window)
        return (await profiler.stop(window, keep=False)).artifact

    assert "" == run(work())
    assert [] == [*engine.folder.iterdir(), *window.folder.iterdir()]


def test_stopping_twice_stops_once(engine: StandIn, tmp_path: Path) -> None:
    """
    The second finds nothing of ours.
    """
    profiler, window = VllmProfiler(engine), asked(tmp_path)

    async def work() -> None:
        await profiler.start(window)
        await profiler.stop(window)
        with pytest.raises(NoArtifactError):
            await profiler.stop(window)

    run(work())

    assert 1 == engine.calls.count("stop")


def test_somebody_elses_session_is_never_stopped(engine: StandIn, tmp_path: Path) -> None:
    """
    The engine refuses the start, and that is that.
    """
    engine.active = True
    with pytest.raises(ForeignProfilerError):
        run(VllmProfiler(engine).start(asked(tmp_path)))

    assert engine.active
    assert "stop" not in engine.calls


def test_a_failed_start_reported_as_a_success_is_no_artifact(engine: StandIn, tmp_path: Path) -> None:
    """
    There is no trace to be found.
    """
    engine.fails = True
    profiler, window = VllmProfiler(engine, file_deadline=0.1), asked(tmp_path)

    async def work() -> None:
        await profiler.start(window)
        with pytest.raises(NoArtifactError, match="its log says so"):
            await profiler.stop(window)

    run(work())


@pytest.mark.parametrize("hanging", ["start", "stop"])
def test_an_engine_that_does_not_answer_is_stopped_behind_the_window(
    engine: StandIn, tmp_path: Path, hanging: str
) -> None:
    """
    The window ends; the next one waits for it as long as for a start, and records once the engine has answered.
    """
    profiler = VllmProfiler(engine, start_deadline=SHORT, stop_deadline=SHORT)

    async def work() -> str:
        if hanging == "stop":
            await profiler.start(asked(tmp_path, "000001-a"))
        engine.hold = asyncio.Event()
        with pytest.raises(TimeoutError, match=f"not answered the {hanging}"):
            await (profiler.start if hanging == "start" else profiler.stop)(asked(tmp_path, "000001-a"))
        with pytest.raises(TimeoutError, match="still busy"):
            await profiler.start(asked(tmp_path, "000002-b"))
        engine.hold.set()
        await profiler.start(asked(tmp_path, "000003-c"))
        return (await profiler.stop(asked(tmp_path, "000003-c"))).artifact

    assert run(work()).startswith("000003-c")
    assert [] == list(engine.folder.iterdir())


def test_a_cancelled_start_does_not_leave_the_profiler_on(engine: StandIn, tmp_path: Path) -> None:
    """
    It may have taken effect.
    """
    profiler = VllmProfiler(engine)

    async def work() -> None:
        engine.hold = asyncio.Event()
        starting = asyncio.create_task(profiler.start(asked(tmp_path)))
        while not engine.calls:
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        engine.hold.set()
        while engine.active:
            await asyncio.sleep(0)

    run(work())

    assert "stop" == engine.calls[-1]


def test_a_start_that_failed_in_the_engine_is_undone(engine: StandIn, tmp_path: Path) -> None:
    """
    Some of its workers may have begun; the window ends with what the engine said.
    """
    profiler = VllmProfiler(engine)

    async def work() -> None:
        engine.error = RuntimeError("a worker would not")
        with pytest.raises(UnansweredError, match="RuntimeError: a worker would not"):
            await profiler.start(asked(tmp_path, "000001-a"))
        await profiler.start(asked(tmp_path, "000002-b"))

    run(work())

    assert ["start 000001-a", "stop", "start 000002-b"] == engine.calls


@pytest.mark.parametrize("how", ["cancelled", "too long"])
def test_a_start_that_is_refused_after_its_window_ended_stops_nothing(
    engine: StandIn, tmp_path: Path, how: str
) -> None:
    """
    It waited behind somebody else's start, whose session stays on.
    """
    profiler = VllmProfiler(engine, start_deadline=SHORT)

    async def work() -> None:
        engine.hold = asyncio.Event()
        theirs = asyncio.create_task(engine.start_profile("theirs"))
        ours = asyncio.create_task(profiler.start(asked(tmp_path, "000001-a")))
        while len(engine.calls) < 2:
            await asyncio.sleep(0)
        if how == "cancelled":
            ours.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else TimeoutError):
            await ours
        engine.hold.set()
        await theirs
        with pytest.raises(ForeignProfilerError):
            await profiler.start(asked(tmp_path, "000002-b"))

    run(work())

    assert ["start theirs", "start 000001-a", "start 000002-b"] == engine.calls
    assert engine.active


def test_what_was_left_on_is_ended_before_the_next_window(engine: StandIn, tmp_path: Path) -> None:
    """
    A window that nobody closed, or whose stop the engine failed at.
    """
    profiler = VllmProfiler(engine)

    async def work() -> None:
        await profiler.start(asked(tmp_path, "000001-a"))
        await profiler.start(asked(tmp_path, "000002-b"))
        engine.error = RuntimeError("no")
        with pytest.raises(RuntimeError, match="no"):
            await profiler.stop(asked(tmp_path, "000002-b"))
        await profiler.start(asked(tmp_path, "000003-c"))

    run(work())

    assert ["start 000001-a", "stop", "start 000002-b", "stop", "stop", "start 000003-c"] == engine.calls


def test_a_dead_engine_is_a_lost_recording(engine: StandIn, tmp_path: Path) -> None:
    """
    At the start or at the stop.
    """
    profiler, window = VllmProfiler(engine), asked(tmp_path)

    async def work() -> None:
        engine.error = EngineDeadError("gone")
        with pytest.raises(LostError, match="gone"):
            await profiler.start(window)
        engine.active = False
        await profiler.start(window)
        engine.error = EngineDeadError("gone")
        with pytest.raises(LostError):
            await profiler.stop(window)

    run(work())


def test_the_level_is_the_engines(tmp_path: Path) -> None:
    """
    Stacks, shapes and memory are beyond operators.
    """
    engine = StandIn(tmp_path, torch_profiler_with_stack=True)

    assert "full" == run(VllmProfiler(engine).start(asked(tmp_path))).level


def test_where_it_cannot_be_used_it_says_why(tmp_path: Path) -> None:
    """
    No engine, one without its profiler, one that writes to a remote address.
    """
    registered = Registry().find("vllm")

    assert registered is not None
    assert "register_profiler" in str(registered.unavailable())
    assert "profiler_config" in str(VllmProfiler(StandIn(tmp_path, profiler=None)).unavailable())
    assert "remote address" in str(VllmProfiler(StandIn(tmp_path, torch_profiler_dir="s3://b/t")).unavailable())
    assert None is VllmProfiler(StandIn(tmp_path)).unavailable()
    with pytest.raises(UnavailableError):
        run(VllmProfiler().start(asked(tmp_path)))
