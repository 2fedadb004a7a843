"""
The closing lines of the demo: what is there, what is not any more, and what it cost.
"""

from pathlib import Path

import pytest

from stepscope_sidecar import schema
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.progress import Progress
from stepscope_sidecar.store import Store
from tests.unit.sidecar.stored import put, window

SHA = "0" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """
    A run with three recordings, of which retention has removed the two of the first steps.
    """
    found = tmp_path / "demo-a"
    found.mkdir()
    store = Store.open(found / schema.FILE, run="demo", attempt="a")
    gone = [window(step, sha256=SHA, bytes=960_307, complete=True) for step in (2, 3)]
    put(
        store,
        *gone,
        window(4, sha256=SHA, bytes=960_307, complete=True, artifact="demo-a/step-000004/recording.json.gz"),
    )
    store.close()
    return found


def closing(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """
    What the demo says at its end.
    """
    Progress().close(folder)
    return capsys.readouterr().out


def test_recordings_that_were_removed_are_counted_and_not_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The hints name one that is there.
    """
    said = closing(folder, capsys)

    assert "1 recording in" in said
    assert "2 recordings removed, as STEPSCOPE_KEEP_SECONDS and STEPSCOPE_KEEP_BYTES say" in said
    assert "step-000004/recording.json.gz (937.8 KiB)" in said
    assert ":  (" not in said
    assert "show w-4-ready" in said
    assert "spans --step 4" in said
    assert "since removed" not in said


@pytest.mark.parametrize(("ratio", "hint"), [(None, True), (0.031, False)])
def test_it_says_what_it_cost_or_why_that_is_unknown(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ratio: float | None, hint: bool
) -> None:
    """
    A line for each role, and that a short run rarely tells.
    """
    item = Estimate(role="trainer", stall=1, slowdown=None, ratio=ratio, wall_ratio=None, why="too few", costs=())
    monkeypatch.setattr(Costs, "refresh", lambda _: {"trainer": item})

    said = closing(folder, capsys)

    assert f"overhead of trainer: {'3.1%' if ratio else 'unknown: too few'}\n" in said
    assert hint == ("rarely gives a figure" in said)
