"""
The tool ``vllm`` against a real engine, quirk by quirk.
"""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.profilers import ForeignProfilerError, NoArtifactError, Recording, Request
from stepscope.profilers.vllm import VllmProfiler
from stepscope.wire import Closed
from stepscope_sidecar import artifacts
from stepscope_sidecar.jobs import Job
from tests.vllm.conftest import Served

pytestmark = pytest.mark.filterwarnings("default")  # vLLM's own


def asked(folder: Path, step: int, *, rank: int = 0) -> Request:
    """
    A window of a replica.
    """
    window = f"{step:06d}-rollouter-{rank}-4711-vllm-0a1b2c"
    (folder / window).mkdir()
    return Request(window=window, level="spans", folder=folder / window, rank=rank)


async def recorded(profiler: VllmProfiler, window: Request, work: Callable[[], Awaitable[object]]) -> Recording:
    """
    What a window that holds ``work`` leaves.
    """
    await profiler.start(window)
    await work()
    return await profiler.stop(window)


async def nothing() -> None:
    """
    No traffic.
    """


def final(window: Request, recording: Recording) -> dict[str, Any]:
    """
    The final artifact, as the sidecar makes it.
    """
    closed = Closed(
        window=window.window,
        reason="boundary",
        version_at_close=0,
        opened_unix_ns=1,
        closed_unix_ns=2,
        artifact=recording.artifact,
        trace_id="",
        span_id="",
        level="ops",
        metadata={"stepscope.window": window.window},
    )
    made = artifacts.handler("vllm")(Job(folder=window.folder, closed=closed, pid=1, tool="vllm"))
    found: dict[str, Any] = json.loads(gzip.decompress(made.path.read_bytes()))
    return found


def batches(trace: dict[str, Any]) -> int:
    """
    How many batches of the engine are on the timeline.
    """
    return sum(str(event.get("name", "")).startswith("execute_") for event in trace["traceEvents"])


def leftovers(served: Served) -> list[str]:
    """
    What lies in the engine's own folder.
    """
    folder = Path(served.engine.llm.vllm_config.profiler_config.torch_profiler_dir)
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_three_windows_in_a_row_are_three_artifacts(served: Served, tmp_path: Path) -> None:
    """
    Each in its window's folder, named by it, with the engine's work of that window; nothing stays with the engine.
    """
    profiler, before = VllmProfiler(served.engine.llm), leftovers(served)
    windows = [asked(tmp_path, step) for step in (1, 2, 3)]

    async def work() -> list[Recording]:
        return [await recorded(profiler, window, lambda: served.generate(limit=4)) for window in windows]

    recordings = served.run(work())
    traces = [final(window, recording) for window, recording in zip(windows, recordings, strict=True)]

    assert all(
        recording.artifact.startswith(window.window) for window, recording in zip(windows, recordings, strict=True)
    )
    assert [window.window for window in windows] == [trace["stepscope.window"] for trace in traces]
    assert all(4 <= batches(trace) <= 6 for trace in traces)
    # Of other tests something may lie there: a worker whose profiler they broke writes it when it is ended.
    assert before == leftovers(served)


def test_a_replica_without_traffic_closes_its_window_too(served: Served, second: Served, tmp_path: Path) -> None:
    """
    Of two that record the same step one has nothing to do: both leave a sound artifact.
    """
    profilers = [VllmProfiler(one.engine.llm) for one in (served, second)]
    windows = [asked(tmp_path, 5, rank=rank) for rank in (0, 1)]

    async def work() -> list[Recording]:
        await asyncio.gather(*(one.start(window) for one, window in zip(profilers, windows, strict=True)))
        await served.generate(limit=4)
        return [await one.stop(window) for one, window in zip(profilers, windows, strict=True)]

    busy, idle = (final(window, recording) for window, recording in zip(windows, served.run(work()), strict=True))

    assert batches(busy) > 0
    assert 0 == batches(idle)


def test_a_session_of_somebody_else_is_left_alone(served: Served, tmp_path: Path) -> None:
    """
    Also after its worker has stopped by itself, which the engine still takes for active: it refuses a second start.
    """
    engine, profiler = served.engine.llm, VllmProfiler(served.engine.llm)

    async def work() -> Recording:
        await engine.start_profile(profile_prefix="theirs", max_iterations=2)
        with pytest.raises(ForeignProfilerError):
            await profiler.start(asked(tmp_path, 1))
        await served.generate(limit=8)
        with pytest.raises(ForeignProfilerError):
            await profiler.start(asked(tmp_path, 2))
        with pytest.raises(NoArtifactError):
            await profiler.stop(asked(tmp_path, 3))
        await engine.stop_profile()
        return await recorded(profiler, asked(tmp_path, 4), nothing)

    recording = served.run(work())
    theirs = leftovers(served)
    for name in theirs:
        (Path(engine.vllm_config.profiler_config.torch_profiler_dir) / name).unlink()

    assert recording.artifact
    assert 1 == sum(name.startswith("theirs_") and name.endswith(".json") for name in theirs)


def test_a_window_whose_worker_stopped_by_itself_keeps_what_there_is(served: Served, tmp_path: Path) -> None:
    """
    An engine may be configured to stop after some batches; the next window opens all the same.
    """

    class Capped:
        vllm_config = served.engine.llm.vllm_config

        async def start_profile(self, profile_prefix: str | None = None) -> None:
            await served.engine.llm.start_profile(profile_prefix, max_iterations=2)

        async def stop_profile(self) -> None:
            await served.engine.llm.stop_profile()

    profiler, windows = VllmProfiler(Capped()), [asked(tmp_path, 1), asked(tmp_path, 2)]

    async def work() -> list[Recording]:
        return [await recorded(profiler, window, lambda: served.generate(limit=8)) for window in windows]

    traces = [final(window, found) for window, found in zip(windows, served.run(work()), strict=True)]

    assert all(0 < batches(trace) <= 3 for trace in traces)


@pytest.mark.parametrize("how", ["start", "stop"])
def test_a_failure_that_the_engine_reports_as_a_success_is_no_artifact(
    served: Served, tmp_path: Path, how: str
) -> None:
    """
    Its worker only logs it. The window says so, and the next one records.
    """
    engine, profiler = served.engine.llm, VllmProfiler(served.engine.llm, file_deadline=0.2)

    async def work() -> Recording:
        await recorded(profiler, asked(tmp_path, 1), nothing)
        if how == "start":
            await engine.collective_rpc("break_profiler", args=(how,))
        window = asked(tmp_path, 2)
        await profiler.start(window)
        if how == "stop":
            await engine.collective_rpc("break_profiler", args=(how,))
        await served.generate(limit=2)
        with pytest.raises(NoArtifactError, match="no trace"):
            await profiler.stop(window)
        await engine.collective_rpc("mend_profiler")
        if how == "stop":
            # Theirs is still on in torch, which vLLM does not know of.
            await engine.collective_rpc("end_profiler")
        return await recorded(profiler, asked(tmp_path, 3), lambda: served.generate(limit=2))

    assert served.run(work()).artifact


def test_a_stop_that_takes_too_long_ends_the_window_and_not_the_next(served: Served, tmp_path: Path) -> None:
    """
    The engine is stopped behind it; what it still writes for that window is nobody's.
    """
    hurried, profiler = VllmProfiler(served.engine.llm, stop_deadline=1e-6), VllmProfiler(served.engine.llm)

    async def work() -> Recording:
        with pytest.raises(TimeoutError, match="not answered the stop"):
            await recorded(hurried, asked(tmp_path, 1), lambda: served.generate(limit=4))
        await hurried.start(asked(tmp_path, 2))
        with pytest.raises(TimeoutError):
            await hurried.stop(asked(tmp_path, 9))
        await hurried.start(asked(tmp_path, 3))
        await served.engine.llm.stop_profile()
        return await recorded(profiler, asked(tmp_path, 4), nothing)

    recording = served.run(work())
    for name in leftovers(served):
        (Path(served.engine.llm.vllm_config.profiler_config.torch_profiler_dir) / name).unlink()

    assert recording.artifact


def test_a_window_that_was_cancelled_at_its_start_does_not_stay_on(served: Served, tmp_path: Path) -> None:
    """
    The start may take effect all the same; nobody else would stop it.
    """
    profiler, before = VllmProfiler(served.engine.llm), leftovers(served)

    async def work() -> Recording:
        starting = asyncio.create_task(profiler.start(asked(tmp_path, 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return await recorded(profiler, asked(tmp_path, 2), nothing)

    recording = served.run(work())

    assert "000002" in recording.artifact
    assert before == leftovers(served)
