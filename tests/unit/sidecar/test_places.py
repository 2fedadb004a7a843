"""
Recordings are read below the folder of runs alone, whatever links lie there, and whoever asks.
"""

import shutil
from dataclasses import replace

import pytest

from stepscope import wire
from stepscope_sidecar import data
from stepscope_sidecar.timeline import merge
from tests.unit.sidecar.stored import put
from tests.unit.sidecar.test_show import Run
from tests.unit.sidecar.traces import closed


@pytest.mark.parametrize("kind", ["file", "folder", "absolute", "loop", "left"])
def test_nothing_outside_the_folder_of_runs_is_read(
    run: Run, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    """
    A link in a recording's place, on the way to it, or to what a failed window has left: a reason, not the bytes.
    """
    outside = tmp_path_factory.mktemp("outside")
    for name in ("recording.json.gz", "recording.json"):
        (outside / name).write_bytes(b"secret, and no recording")
    made = run.add(5, "failed" if kind == "left" else "ready", recording=None if kind == "left" else b"x", reason="r")
    folder = run.directory / made.folder
    if kind == "absolute":
        put(run.store, replace(made, artifact=str(outside / "recording.json.gz")))
    elif kind == "left":
        (outside / wire.RECORD).write_bytes(wire.encode(closed(window=made.window)))
        folder.rmdir()
        folder.symlink_to(outside)
    elif kind == "folder":
        shutil.rmtree(folder)
        folder.symlink_to(outside)
    else:
        file = run.directory / made.artifact
        file.unlink()
        file.symlink_to(outside / file.name if kind == "file" else file)

    with data.open(run.folder) as tables:
        assert not tables.kernels.num_rows
    found = run.show(made.window)
    merged = merge(run.folder / "stepscope.db", 5, run.directory / "merged.json")

    assert found.summaries == []
    assert "secret" not in run.text(made.window) + repr(merged)
    assert not merged.recordings
    assert found.why
    assert [found.why.replace(f"{run.directory}/", "")] == [one.why for one in merged.missing if one.absent]
