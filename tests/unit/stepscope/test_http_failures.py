"""
The tool http and servers that fail: the profiler is not left on where it may be, and nobody else's is stopped.
"""

import asyncio
from pathlib import Path

import pytest

from stepscope.profilers import ForeignProfilerError
from stepscope.profilers.http import HttpProfiler, RefusedError
from stepscope.profilers.sessions import UnansweredError
from tests.standins.inference import Raw, Reply, StandInSglang, StandInVllm
from tests.unit.stepscope.served import SHORT, driver, record, request


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_start_that_failed_on_the_way_is_undone(vllm: StandInVllm, tmp_path: Path, status: int) -> None:
    """
    Some of its workers may have begun, or all behind a proxy that has lost patience; a session of others is a 409.
    """

    def half() -> Reply:
        vllm.start({})
        return status, "lost"

    vllm.instead["/start_profile"] = half
    with pytest.raises(UnansweredError, match=f"the server refused the start with {status}: lost"):
        asyncio.run(driver(vllm).start(request(tmp_path)))

    assert ["/start_profile", "/stop_profile"] == vllm.paths()
    assert not vllm.active


def test_a_proxy_before_sglang_that_has_lost_patience(sglang: StandInSglang, tmp_path: Path) -> None:
    """
    The answer is not SGLang's, which may have begun; its own 500 means somebody else's session.
    """

    def half() -> Reply:
        sglang.start({"output_dir": str(tmp_path), "profile_id": "x"})
        return 504, ""

    sglang.instead["/start_profile"] = half
    with pytest.raises(UnansweredError, match="with 504"):
        asyncio.run(driver(sglang).start(request(tmp_path)))

    assert not sglang.in_progress


@pytest.mark.parametrize("refusal", [307, 404, 503])
def test_a_session_whose_stop_was_refused_is_ended_before_the_next(
    vllm: StandInVllm, tmp_path: Path, refusal: int
) -> None:
    """
    Otherwise it would be on for good: its window fails, the next one begins with another stop, and has its own trace.
    """
    profiler = driver(vllm)
    vllm.instead["/stop_profile"] = lambda: (refusal, "") if vllm.paths().count("/stop_profile") == 1 else None
    with pytest.raises(RefusedError, match=str(refusal)):
        record(profiler, request(tmp_path))
    second = request(tmp_path, 2)

    assert record(profiler, second).artifact.startswith(second.window)
    assert ["/start_profile", "/stop_profile", "/stop_profile", "/start_profile", "/stop_profile"] == vllm.paths()
    assert [] == list(vllm.folder.iterdir())


def test_a_refusal_whose_end_does_not_come_is_one(tmp_path: Path) -> None:
    """
    The status says that the session is somebody else's: it must not be taken for a start without an answer.
    """
    with Raw(b"HTTP/1.1 409 Conflict\r\nContent-Length: 100\r\n\r\nbusy") as server:
        profiler = HttpProfiler(server.url, folder=tmp_path / "server", start_deadline=SHORT)
        with pytest.raises(ForeignProfilerError):
            asyncio.run(profiler.start(request(tmp_path)))

    assert [b"POST /start_profile HTTP/1.1"] == server.asked


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200", "went away"),
        (b"HTTP/1.1 \xb2\xb2\xb2 what\r\n\r\n", "not HTTP"),
        (b"SSH-2.0-x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "went away"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", "more than"),
    ],
)
def test_an_answer_that_is_none_is_undone(tmp_path: Path, answer: bytes, said: str) -> None:
    """
    Cut off in the middle, or nonsense: the start may have come through all the same.
    """
    with Raw(answer) as server, pytest.raises(UnansweredError, match=said):
        asyncio.run(HttpProfiler(server.url, folder=tmp_path / "server").start(request(tmp_path)))

    assert [b"POST /start_profile HTTP/1.1", b"POST /stop_profile HTTP/1.1"] == server.asked


def test_what_comes_before_the_answer_is_not_the_answer(tmp_path: Path) -> None:
    """
    Proxies may say that they go on.
    """
    with Raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut") as server:
        armed = asyncio.run(HttpProfiler(server.url, folder=tmp_path / "server").start(request(tmp_path)))

    assert "ops" == armed.level


def test_a_start_that_failed_leaves_no_folder(sglang: StandInSglang, tmp_path: Path) -> None:
    """
    The one that was made for the window's traces.
    """
    sglang.instead["/start_profile"] = lambda: (400, "no")
    with pytest.raises(RefusedError):
        asyncio.run(driver(sglang, folder=tmp_path / "server").start(request(tmp_path)))

    assert [] == list((tmp_path / "server").iterdir())
