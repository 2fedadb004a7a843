"""
The tool http, against a stand-in for SGLang's server.
"""

import asyncio
from pathlib import Path

import pytest

from stepscope.profilers import traces
from stepscope.profilers.http import RefusedError
from tests.standins.inference import StandInSglang
from tests.unit.stepscope.served import driver, operators, record, request


def test_sglang_writes_into_the_windows_folder(sglang: StandInSglang, tmp_path: Path) -> None:
    """
    It is told where, and the window's name; it is never told a step to start at, nor how many.
    """
    window = request(tmp_path, level="full")
    recording = record(driver(sglang), window)
    body = sglang.asked[0][1]

    assert {
        "output_dir": str(window.folder),
        "profile_id": window.window,
        "activities": ["CPU", "GPU"],
        "with_stack": True,
        "record_shapes": True,
    } == body
    assert f"{window.window}-TP-0.trace.json" == recording.artifact
    assert ["aten::mm"] == operators(window.folder / recording.artifact)


@pytest.mark.parametrize(
    ("asked", "used", "activities"),
    [("device", "device", ["GPU"]), ("spans", "ops", ["CPU", "GPU"]), ("ops", "ops", ["CPU", "GPU"])],
)
def test_sglang_levels(sglang: StandInSglang, tmp_path: Path, asked: str, used: str, activities: list[str]) -> None:
    """
    Spans of this process cannot be on the timeline of another.
    """
    armed = asyncio.run(driver(sglang).start(request(tmp_path, level=asked)))

    assert (used, asked if used != asked else "") == (armed.level, armed.fallback)
    assert activities == sglang.asked[0][1]["activities"]


def test_sglang_without_traffic_closes_its_window(sglang: StandInSglang, tmp_path: Path) -> None:
    """
    No batch ever runs: the start takes effect at once and the stop needs none.
    """
    assert 0 == sglang.forward_ct
    assert record(driver(sglang), request(tmp_path)).artifact


def test_sglangs_trap_is_real_in_the_stand_in() -> None:
    """
    Armed with a start step, it reports success and records nothing; the stop is refused, and it starts afterwards.
    """
    sglang = StandInSglang()
    try:
        assert 200 == sglang.start({"output_dir": "/nowhere", "start_step": 3})[0]
        assert 500 == sglang.stop()[0]
        for _ in range(3):
            sglang.forward()

        assert sglang.in_progress
    finally:
        sglang._server.server_close()


def test_sglang_of_several_ranks_is_waited_for(
    sglang: StandInSglang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The answer comes when the first has written; the others' traces belong to the window too.
    """
    monkeypatch.setattr(traces, "QUIET", 2.0)
    sglang.ranks = 2
    window = request(tmp_path)
    profiler = driver(sglang)
    asyncio.run(profiler.start(window))
    sglang.released.set()
    recording = asyncio.run(profiler.stop(window))

    assert 2 == len(list((window.folder / recording.artifact).iterdir()))


@pytest.mark.parametrize("keep", [True, False])
def test_sglang_with_a_folder_of_its_own(sglang: StandInSglang, tmp_path: Path, keep: bool) -> None:
    """
    Each window has a folder in it, which is gone when its trace has come home or is not wanted.
    """
    window, traces = request(tmp_path), tmp_path / "server"
    recording = record(driver(sglang, folder=traces), window, keep=keep)

    assert str(traces / window.window) == sglang.asked[0][1]["output_dir"]
    assert keep == (window.folder / recording.artifact).is_file()
    assert [] == list(traces.iterdir())


def test_sglang_refuses_without_saying_why(sglang: StandInSglang, tmp_path: Path) -> None:
    """
    A start on top of another session fails in its scheduler.
    """
    sglang.in_progress = sglang._profiler = True
    with pytest.raises(RefusedError, match="500: Internal Server Error"):
        asyncio.run(driver(sglang).start(request(tmp_path)))

    assert ["/start_profile"] == sglang.paths()
