"""
The tool http, against a stand-in for vLLM's server: whose session it is, and that each is ended once, come what may.
"""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from stepscope.profilers import ForeignProfilerError, NoArtifactError, Recording
from stepscope.profilers.sessions import UnansweredError
from tests.standins.inference import Cut, StandInVllm
from tests.unit.stepscope.fake_sidecar import until
from tests.unit.stepscope.served import SHORT, driver, record, record_in, request


async def cancelled(work: Coroutine[Any, Any, object], vllm: StandInVllm) -> None:
    """
    Cancel ``work`` when the server holds its request back.
    """
    task = asyncio.create_task(work)
    assert await asyncio.to_thread(vllm.held.wait, 10.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_session_of_others_is_left_alone(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    A second start is refused by the server: nothing is stopped, then or at the end of the window.
    """
    vllm.active = True
    profiler = driver(vllm)

    with pytest.raises(ForeignProfilerError, match="already on"):
        asyncio.run(profiler.start(request(tmp_path)))
    with pytest.raises(NoArtifactError, match="no session was started"):
        asyncio.run(profiler.stop(request(tmp_path)))

    assert ["/start_profile"] == vllm.paths()


def test_the_stop_is_sent_once(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    A second stop crashed some servers.
    """
    profiler = driver(vllm)
    window = request(tmp_path)
    record(profiler, window)
    with pytest.raises(NoArtifactError):
        asyncio.run(profiler.stop(window))

    assert 1 == vllm.stops


def test_a_stop_that_hangs_is_given_up(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    After its deadline, without a second one; the next start is refused while it hangs, and says why.
    """
    vllm.instead["/stop_profile"] = vllm.hold
    profiler = driver(vllm, stop_deadline=SHORT)
    first = request(tmp_path)
    with pytest.raises(TimeoutError, match="has not answered the stop"):
        record(profiler, first)
    with pytest.raises(ForeignProfilerError, match=f"perhaps that of window {first.window}"):
        asyncio.run(profiler.start(request(tmp_path, 2)))
    vllm.released.set()
    until(lambda: not vllm.active)

    assert record(profiler, request(tmp_path, 3)).artifact
    assert 2 == vllm.stops


def test_a_start_without_an_answer_is_undone(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The server may carry it out later, and would be profiled from then on: a stop follows it.
    """
    order = threading.Event()

    def after() -> None:
        vllm.released.set()
        order.wait(60.0)

    vllm.instead["/start_profile"] = vllm.hold
    vllm.instead["/stop_profile"] = after
    profiler = driver(vllm, start_deadline=SHORT, stop_deadline=SHORT)
    with pytest.raises(
        UnansweredError, match=f"no answer to the start: {vllm.url} has not answered within {SHORT:g} s"
    ):
        asyncio.run(profiler.start(request(tmp_path)))
    until(lambda: vllm.active)
    order.set()
    until(lambda: not vllm.active)

    assert ["/start_profile", "/stop_profile"] == vllm.paths()


def test_a_start_that_was_cut_off_is_undone(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The server had carried it out when the connection ended.
    """

    def cut() -> None:
        vllm.start({})
        raise Cut

    vllm.instead["/start_profile"] = cut
    with pytest.raises(UnansweredError, match=f"no answer to the start: {vllm.url} went away: "):
        asyncio.run(driver(vllm).start(request(tmp_path)))

    assert ["/start_profile", "/stop_profile"] == vllm.paths()
    assert not vllm.active


@pytest.mark.parametrize("held", ["start", "stop"])
def test_a_call_that_is_cancelled_goes_its_way(vllm: StandInVllm, tmp_path: Path, held: str) -> None:
    """
    The request is with the server: the session is ended all the same, its trace is nobody's, and only then the next
    window begins.
    """
    vllm.instead[f"/{held}_profile"] = vllm.hold
    profiler, second = driver(vllm), request(tmp_path, 2)

    async def both() -> Recording:
        if held == "stop":
            await profiler.start(request(tmp_path))
        await cancelled((profiler.start if held == "start" else profiler.stop)(request(tmp_path)), vllm)
        following = asyncio.create_task(record_in(profiler, second))
        early, _ = await asyncio.wait({following}, timeout=SHORT)
        assert not early
        vllm.released.set()
        return await following

    assert asyncio.run(both()).artifact.startswith(second.window)
    assert ["/start_profile", "/stop_profile"] * 2 == vllm.paths()
    assert [] == list(vllm.folder.iterdir())


def test_a_start_cancelled_with_its_loop_is_undone(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The event loop ends at once: the stop goes out all the same.
    """
    vllm.instead["/start_profile"] = vllm.hold
    asyncio.run(cancelled(driver(vllm).start(request(tmp_path)), vllm))
    until(lambda: vllm.paths() == ["/start_profile", "/stop_profile"])


def test_a_cancelled_start_that_was_refused_stops_nothing(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The session that is on is somebody else's, also when nobody waits for the refusal.
    """
    vllm.active = True
    vllm.instead["/start_profile"] = vllm.hold
    profiler = driver(vllm)

    async def twice() -> None:
        await cancelled(profiler.start(request(tmp_path)), vllm)
        vllm.released.set()
        with pytest.raises(ForeignProfilerError):
            await profiler.start(request(tmp_path, 2))

    asyncio.run(twice())

    assert ["/start_profile"] * 2 == vllm.paths()
    assert vllm.active


def test_a_session_that_no_window_closed_is_ended_first(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    It is ours, so it may be stopped; its trace is nobody's.
    """
    profiler = driver(vllm)

    async def both() -> Recording:
        await profiler.start(request(tmp_path))
        return await record_in(profiler, request(tmp_path, 2))

    assert asyncio.run(both()).artifact.startswith("000002")
    assert [] == list(vllm.folder.iterdir())
