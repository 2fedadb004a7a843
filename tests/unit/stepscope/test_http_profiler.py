"""
The tool http, against a stand-in for vLLM's server: what an answer means, and the trace that comes home.
"""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from stepscope.profilers import LostError, NoArtifactError, UnavailableError
from stepscope.profilers.http import HttpProfiler, RefusedError
from tests.standins.inference import Cut, StandInVllm, write_trace
from tests.unit.stepscope.served import SHORT, driver, operators, record, request


def test_the_trace_comes_home(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    Its name was asked for, it is moved into the window's folder, and it is whole.
    """
    window = request(tmp_path)
    recording = record(driver(vllm), window)

    assert [("/start_profile", {"profile_prefix": window.window}), ("/stop_profile", {})] == vllm.asked
    assert recording.artifact.startswith(f"{window.window}_rank0.")
    assert ["aten::mm"] == operators(window.folder / recording.artifact)
    assert [recording.artifact] == [path.name for path in window.folder.iterdir()]
    assert [] == list(vllm.folder.iterdir())


def test_a_name_that_the_server_would_refuse_is_made_plain(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    A role may be called anything; the window keeps its name.
    """
    window = dataclasses.replace(request(tmp_path), window="_1-rôle/a b-0-7-http")
    recording = record(driver(vllm), window)

    assert {"profile_prefix": "1-r-le-a-b-0-7-http"} == vllm.asked[0][1]
    assert recording.artifact.startswith("1-r-le-a-b-0-7-http_rank0.")


def test_three_windows_in_a_row_give_three(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    Each has its own trace.
    """
    profiler = driver(vllm)
    windows = [request(tmp_path, number) for number in (1, 2, 3)]
    found = [window.folder / record(profiler, window).artifact for window in windows]

    assert [True] * 3 == [path.is_file() for path in found]
    assert ["/start_profile", "/stop_profile"] * 3 == vllm.paths()


def test_several_ranks_make_a_folder(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    A server of several workers leaves a trace for each.
    """
    vllm.ranks = 3
    window = request(tmp_path)
    recording = record(driver(vllm), window)

    assert "traces" == recording.artifact
    assert 3 == len(list((window.folder / "traces").iterdir()))


def test_level_is_the_servers(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    vLLM records operators whatever is asked for, and that is said.
    """
    profiler = driver(vllm)
    armed = asyncio.run(profiler.start(request(tmp_path, level="spans")))

    assert ("ops", "spans", False) == (armed.level, armed.fallback, armed.marks)


def test_a_start_that_failed_unsaid_is_found_out(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The server reports success although its workers could not start: there is no trace, and the next window is free.
    """
    vllm.worker_fails = True
    profiler = driver(vllm, file_deadline=SHORT)
    with pytest.raises(NoArtifactError, match="its profiler had failed to start"):
        record(profiler, request(tmp_path))

    vllm.worker_fails = False
    assert record(profiler, request(tmp_path, 2)).artifact


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """
    Nobody listens: the tool is unavailable, at once.
    """
    with StandInVllm(tmp_path / "server") as gone:
        pass
    with pytest.raises(UnavailableError, match="nobody answers at"):
        asyncio.run(driver(gone).start(request(tmp_path)))


def test_a_server_that_dies_within_the_window(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    What it recorded is lost with it.
    """
    profiler = driver(vllm)
    asyncio.run(profiler.start(request(tmp_path)))
    vllm.go_away()
    with pytest.raises(LostError, match="nobody answers"):
        asyncio.run(profiler.stop(request(tmp_path)))


def test_a_server_that_dies_while_it_stops(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The connection ends without an answer.
    """

    def die() -> None:
        raise Cut

    vllm.instead["/stop_profile"] = die
    with pytest.raises(LostError, match="no answer to the stop"):
        record(driver(vllm), request(tmp_path))


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (404, UnavailableError, "--profiler-config"),
        (401, UnavailableError, "STEPSCOPE_HTTP_PROFILER_TOKEN_FILE"),
        (400, RefusedError, "with 400: wrong"),
        (307, RefusedError, "redirect"),
    ],
)
def test_refusals(vllm: StandInVllm, tmp_path: Path, status: int, error: type[Exception], said: str) -> None:
    """
    Each says what it means; no redirect is followed.
    """
    vllm.instead["/start_profile"] = lambda: (status, "wrong")
    vllm.extra_headers["Location"] = f"{vllm.url}/elsewhere"
    with pytest.raises(error, match=said):
        asyncio.run(driver(vllm).start(request(tmp_path)))

    assert ["/start_profile"] == vllm.paths()


def test_a_refused_stop(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The window fails with what the server said.
    """
    vllm.instead["/stop_profile"] = lambda: (500, "EngineDeadError")
    with pytest.raises(RefusedError, match="refused the stop with 500: EngineDeadError"):
        record(driver(vllm), request(tmp_path))


def test_what_is_not_wanted_is_not_left_behind(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    Neither in the server's folder nor in the window's.
    """
    window = request(tmp_path)
    recording = record(driver(vllm), window, keep=False)

    assert "" == recording.artifact
    assert [] == [*vllm.folder.iterdir(), *window.folder.iterdir()]


def test_traces_of_others_in_the_folder_stay(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    Another server writes into it too: only what has the window's name is the window's.
    """
    vllm.folder.mkdir()
    profiler, window = driver(vllm), request(tmp_path)
    asyncio.run(profiler.start(window))
    write_trace(vllm.folder / "rank0.1.pt.trace.json.gz")
    recording = asyncio.run(profiler.stop(window))

    assert recording.artifact.startswith(window.window)
    assert ["rank0.1.pt.trace.json.gz"] == [path.name for path in vllm.folder.iterdir()]


def test_a_server_too_old_to_name_traces(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    Said so, its trace is the one that was not there before.
    """
    vllm.folder.mkdir()
    write_trace(vllm.folder / "rank0.1.pt.trace.json.gz")
    vllm.takes_names = False
    with pytest.raises(NoArtifactError):
        record(driver(vllm, file_deadline=SHORT), request(tmp_path))
    old = driver(vllm, kind="vllm-unnamed")
    recording = record(old, request(tmp_path, 2))

    assert recording.artifact.startswith("rank0.")
    assert "rank0.1.pt.trace.json.gz" != recording.artifact


def test_the_key_goes_along(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    It comes from a file, read anew each time; a file that is not there makes the tool unavailable.
    """
    key = tmp_path / "key"
    profiler = driver(vllm, token_file=key)
    assert "the API key cannot be read" in (profiler.unavailable() or "")

    key.write_text("secret\nX-Evil: 1\n")
    assert "one line of plain text" in (profiler.unavailable() or "")

    key.write_text("secret\n")
    assert profiler.unavailable() is None
    record(profiler, request(tmp_path))

    assert ["Bearer secret"] * 2 == [headers["Authorization"] for headers in vllm.headers]


def test_without_a_server_it_is_unavailable(tmp_path: Path) -> None:
    """
    And says what to set.
    """
    profiler = HttpProfiler()

    assert "STEPSCOPE_HTTP_PROFILER_URL" in (profiler.unavailable() or "")
    with pytest.raises(UnavailableError, match="no server is named"):
        asyncio.run(profiler.start(request(tmp_path)))
