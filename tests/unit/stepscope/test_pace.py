"""
The bytes of a recording that is being made, reckoned by the one before it.
"""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import wire
from stepscope.names import Reason
from stepscope.pace import Paces
from stepscope.profilers import Recording, Request
from stepscope.watchdog import MARK_BYTES, Watch
from tests.unit.stepscope.closes import CLOSED
from tests.unit.stepscope.desk import SPAN, TRACE, Rig
from tests.unit.stepscope.fake_profiler import FakeEngine

SECOND = 10**9


def closed(level: str = "ops", *, took: int = 2 * SECOND) -> wire.Closed:
    """
    A recording at ``level`` that took so long.
    """
    return replace(CLOSED, opened_unix_ns=SECOND, closed_unix_ns=SECOND + took, level=level)


def test_the_last_recording_of_tool_and_level_tells_the_pace() -> None:
    """
    Unknown before the first; one that is too short, holds counted spans alone or has no size here tells nothing.
    """
    paces = Paces()
    unknown = paces.of("torch", "ops")
    for level, took, size in (
        ("ops", 2 * SECOND, 100),
        ("ops", SECOND, 300),
        ("ops", 1000, 9999),
        ("spans", SECOND, 7),
    ):
        paces.note("torch", closed(level, took=took), size)

    paces.note("engine", closed("spans"), 100, marks=False)
    paces.note("engine", closed("spans"), 0, marks=False)

    assert 0.0 == unknown
    assert 50.0 == paces.of("engine", "spans")
    assert (300.0, 0.0, 0.0) == (paces.of("torch", "ops"), paces.of("torch", "spans"), paces.of("x-mine", "ops"))


@pytest.mark.parametrize(
    ("seconds", "marks", "reason"),
    [(0.9, 0, None), (1.0, 0, Reason.CAP_BYTES), (0.0, 9, None), (0.0, 10, Reason.CAP_BYTES), (0.5, 5, None)],
)
def test_bytes_are_those_of_spans_or_of_operators_whichever_are_more(
    seconds: float, marks: int, reason: Reason | None
) -> None:
    """
    The pace holds both: adding them up would count spans twice.
    """
    now = [0.0]
    watch = Watch(wire.Caps(bytes=10 * MARK_BYTES), marks=lambda: marks, pace=10.0 * MARK_BYTES, clock=lambda: now[0])
    now[0] = seconds

    assert reason == watch.passed()


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """
    Bytes that were noted, and whether spans are counted in them.
    """
    found: list[tuple[int, bool]] = []

    def note(paces: Paces, tool: str, closed: wire.Closed, size: int, *, marks: bool = True) -> None:
        found.append((size, marks))

    monkeypatch.setattr(Paces, "note", note)
    return found


def test_windows_learn_their_pace(tmp_path: Path, noted: list[tuple[int, bool]]) -> None:
    """
    From the raw file that each leaves.
    """
    rig = Rig(tmp_path)
    rig.open(5)
    rig.windows.close(version=5)
    rig.windows.end(version=5, timeout=5)

    assert [(len("{}"), True)] == noted


def test_a_recording_is_measured_before_the_sidecar_is_told(
    tmp_path: Path, noted: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    It takes the raw file away at once.
    """
    rig = Rig(tmp_path)
    rig.open(5)
    monkeypatch.setattr(rig.desk, "tell", lambda message: shutil.rmtree(tmp_path / "w1"))
    rig.windows.close(version=5)
    rig.windows.end(version=5, timeout=5)

    assert [(len("{}"), True)] == noted


class Workers(FakeEngine):
    """
    One that leaves a folder, with a link in it that leads out.
    """

    async def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Leave it.
        """
        inner = request.folder / "traces" / "rank-1"
        inner.mkdir(parents=True)
        (inner / "trace.json").write_bytes(bytes(300))
        (inner.parent / "rank-0.json").write_bytes(bytes(200))
        (inner / "link.json").symlink_to(inner.parent / "rank-0.json")
        return Recording(artifact="traces")


def test_an_engines_windows_learn_their_pace_of_all_that_is_in_a_folder(
    tmp_path: Path, noted: list[tuple[int, bool]]
) -> None:
    """
    They are closed by a coroutine, and hold no marks that could be counted.
    """
    rig = Rig(tmp_path, Workers())

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        await rig.windows.aclose(version=5)

    asyncio.run(step())
    rig.windows.end(version=5, timeout=5)

    assert [(500, False)] == noted
