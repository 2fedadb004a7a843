"""
Traces that somebody else's workers write: what an Ascend device's worker leaves in the place of one, and coming home.
"""

import asyncio
import errno
import json
from pathlib import Path

import pytest

from stepscope.profilers import traces
from stepscope.profilers.traces import Drop


def _folder(place: Path, name: str, *, done: bool = True) -> Path:
    path = place / f"{name}_4242_20260101000000000_ascend_pt"
    (path / "FRAMEWORK").mkdir(parents=True)
    (path / "FRAMEWORK" / "torch.op_range").write_bytes(b"raw")
    if done:
        (path / "profiler_info_0.json").write_text("{}")
    return path


def test_a_folder_of_an_ascend_device_is_a_trace(tmp_path: Path) -> None:
    """
    It is found by the window's name, once its profiler has stopped, and comes home as it is.
    """
    place, home = tmp_path / "engine", tmp_path / "window"
    place.mkdir()
    home.mkdir()
    _folder(place, "w1_of_yesterday")
    drop = Drop(place, prefix="w1")
    mine = _folder(place, "w1_rank0")
    _folder(place, "w1_rank1", done=False)
    _folder(place, "w2_rank0")

    found = asyncio.run(drop.arrived(seconds=5, settled=True))
    artifact = drop.bring_home(found, home)

    assert [mine] == found
    assert mine.name == artifact
    assert (home / artifact / "FRAMEWORK" / "torch.op_range").is_file()
    assert not mine.exists()
    assert [] == drop.beside()


def test_folders_of_several_workers_come_home_together(tmp_path: Path) -> None:
    """
    In one folder, as traces of several ranks do; those of a window that is not kept are removed whole.
    """
    place, home = tmp_path / "engine", tmp_path / "window"
    home.mkdir()
    drop = Drop(place, prefix="w1")
    names = sorted(_folder(place, f"w1_rank{rank}").name for rank in (0, 1))

    artifact = drop.bring_home(drop.found(), home)

    assert names == sorted(path.name for path in (home / artifact).iterdir())
    _folder(place, "w1_rank0")
    traces.discard(drop.found())
    assert [] == list(place.iterdir())


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_cannot_be_moved_is_left_to_the_finaliser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """
    Nothing is copied here, however little it is; the note says what is to be fetched from where.
    """
    place, home = tmp_path / "engine", tmp_path / "window"
    place.mkdir()
    home.mkdir()
    drop = Drop(place, prefix="w1", made=True)
    for rank in range(ranks):
        (place / f"w1_rank{rank}.json.gz").write_bytes(b"trace")
    rename = Path.rename

    def across(path: Path, target: Path) -> Path:
        if path.parent == place:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", across)
    artifact = drop.bring_home(drop.found(), home)
    note = json.loads((home / traces.AWAY).read_text())
    inside = "" if ranks == 1 else "traces/"

    assert ("w1_rank0.json" if ranks == 1 else "traces") == artifact
    assert {f"{inside}w1_rank{rank}.json": str(place / f"w1_rank{rank}.json.gz") for rank in range(ranks)} == note[
        "traces"
    ]
    assert str(place) == note["vacate"]
    assert [] == [path for path in home.rglob("*.json*") if path.name != traces.AWAY]
