"""
Traces that a process could not move into the window's folder: the finaliser fetches them, or says why it cannot.
"""

import errno
import gzip
import json
import shutil
from pathlib import Path

import pytest

from stepscope.profilers.traces import AWAY
from stepscope_sidecar.artifacts import away
from stepscope_sidecar.finalise import finalise
from stepscope_sidecar.jobs import Result
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import job

ONE = "w1_rank0.pt.trace.json"
PACKED = f"{ONE}.gz"


def noted(tmp_path: Path, moves: dict[str, str], vacate: str = "") -> Path:
    """
    The window's folder, with a note; the server's is beside it.
    """
    (tmp_path / "server").mkdir(exist_ok=True)
    window = tmp_path / "window"
    window.mkdir()
    told = {target: str(tmp_path / "server" / source) for target, source in moves.items()}
    (window / AWAY).write_text(json.dumps({"traces": told, "vacate": vacate}))
    return window


def outcome(window: Path, artifact: str = ONE) -> Result:
    """
    What finalising it comes to.
    """
    asked = job(window, artifact=artifact, mirrored=[])
    return finalise(type(asked)(folder=window, closed=asked.closed, pid=asked.pid, tool="vllm"))


def test_a_trace_on_another_file_system_is_fetched(tmp_path: Path) -> None:
    """
    It becomes the artifact; neither note nor source stays, nor the folder that was made for the window.
    """
    window = noted(tmp_path, {ONE: PACKED}, vacate=str(tmp_path / "server"))
    traces.put(tmp_path / "server", gzip.compress(traces.trace(5)), name=PACKED)
    result = outcome(window)

    assert ("", str(window / PACKED)) == (result.reason, result.artifact)
    assert [PACKED] == [path.name for path in window.iterdir()]
    assert not (tmp_path / "server").exists()


def test_several_are_fetched_into_one_folder(tmp_path: Path) -> None:
    """
    Also where a killed finaliser has left half of one, and another whole; a recording in a folder is fetched whole.
    """
    names = [f"w1_rank{rank}.json" for rank in (0, 1)]
    window = noted(tmp_path, {f"traces/{name}": name for name in [*names, "w1_ascend_pt"]})
    for name in names:
        traces.put(tmp_path / "server", name.encode(), name=name)
    traces.put(tmp_path / "server" / "w1_ascend_pt" / "deep", b"raw", name="file")
    traces.put(window / "traces", b"ha", name="w1_rank0.json.partial")
    traces.put(window / "traces", names[1].encode(), name=names[1])
    traces.put(window / "traces" / "w1_ascend_pt.partial", b"ha", name="other")
    expected = {name.encode() for name in names}

    assert len(names[0]) + 3 <= away.size(window)
    away.fetch(window)
    away.fetch(window)
    assert expected == {(window / "traces" / name).read_bytes() for name in names}
    assert ["deep"] == [path.name for path in (window / "traces" / "w1_ascend_pt").iterdir()]
    assert [] == list((tmp_path / "server").iterdir())
    assert ["traces"] == [path.name for path in window.iterdir()]
    assert 0 == away.size(window)


def test_one_that_cannot_be_fetched_is_told(tmp_path: Path) -> None:
    """
    The window ends with the reason, and the note stays.
    """
    window = noted(tmp_path, {ONE: ONE})
    result = outcome(window)

    assert "no_artifact" == result.reason
    assert f"server/{ONE} cannot be copied into the window's folder: No such file" in result.detail
    assert (window / AWAY).is_file()


def test_a_full_disk_keeps_the_trace_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And what was copied of it takes no room.
    """

    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    window = noted(tmp_path, {ONE: ONE})
    source = traces.put(tmp_path / "server", traces.trace(5), name=ONE) / ONE

    assert "budget_disk" == outcome(window).reason
    assert source.is_file()
    assert [AWAY] == [path.name for path in window.iterdir()]


@pytest.mark.parametrize(
    "note",
    [
        "[]",
        "{",
        '{"traces": {"../out.json": "/etc/hostname"}, "vacate": ""}',
        '{"traces": {"/tmp/out.json": "/etc/hostname"}, "vacate": ""}',
        '{"traces": {"other/out.json": "/etc/hostname"}, "vacate": ""}',
        '{"traces": {"out.json": "hostname"}, "vacate": ""}',
    ],
)
def test_a_note_that_makes_no_sense_is_not_followed(tmp_path: Path, note: str) -> None:
    """
    Nothing is ever written outside the window's folder.
    """
    window = noted(tmp_path, {})
    (window / AWAY).write_text(note)

    assert "artifact_invalid" == outcome(window).reason
    assert [AWAY] == [path.name for path in window.iterdir()]
    assert 0 == away.size(window)


def test_what_only_the_sidecar_may_read_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The note is another user's.
    """
    window = noted(tmp_path, {ONE: ONE})
    source = traces.put(tmp_path / "server", traces.trace(5), name=ONE) / ONE
    theirs = Path.lstat

    class Note:
        st_uid = -1

    monkeypatch.setattr(Path, "lstat", lambda path: Note() if path.name == AWAY else theirs(path))

    assert "another user's process left it" in outcome(window).detail
    assert source.is_file()
