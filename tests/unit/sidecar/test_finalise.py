"""
What becomes of one closed window: its final artifact, or why there is none.
"""

from pathlib import Path

import pytest

from stepscope_sidecar import finalise
from stepscope_sidecar.places import plain
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import job


def test_what_cannot_be_finalised_fails_with_a_reason(tmp_path: Path) -> None:
    """
    A broken recording, a missing one and a window that left nothing are told apart, and what there is stays.
    """
    broken = traces.put(tmp_path / "broken", traces.trace()[:-30])
    missing = tmp_path / "missing"
    missing.mkdir()

    found = [
        finalise.finalise(job(broken)),
        finalise.finalise(job(missing)),
        finalise.finalise(job(missing, artifact="")),
        finalise.finalise(job(tmp_path / "nowhere")),
    ]

    assert ["artifact_invalid", "no_artifact", "no_artifact", "no_artifact"] == [result.reason for result in found]
    assert not any(result.ready for result in found)
    assert all(result.detail for result in found)
    assert ["recording.json"] == [path.name for path in broken.iterdir()]


@pytest.mark.parametrize("name", ["gpu#0.bin", "a%41.bin", "a?b", "a\\b", "a\nb", "a\udcffb"])
def test_a_name_that_no_upstream_takes_is_no_name_of_a_recording(name: str, tmp_path: Path) -> None:
    """
    The window says so itself, instead of being listed on its own node alone.
    """
    (tmp_path / name).write_bytes(b"x")

    found = finalise.finalise(job(tmp_path, artifact=name))

    assert ("artifact_invalid", False) == (found.reason, plain(name))
    assert "is not a name that can be reported" in found.detail


def test_an_incomplete_recording_is_ready_and_says_so(tmp_path: Path) -> None:
    """
    Missing markers are told with their share; what the process itself knew to be missing comes first.
    """
    spans = [traces.SPAN, "1" * 16]
    missing = finalise.finalise(job(traces.put(tmp_path / "a", traces.trace()), mirrored=spans))
    capped = finalise.finalise(job(traces.put(tmp_path / "b", traces.trace()), incomplete="capped"))

    assert (True, False, "markers_missing", 0.5) == (
        missing.ready,
        missing.complete,
        missing.incomplete_reason,
        missing.incomplete_share,
    )
    assert (False, "capped", None) == (capped.complete, capped.incomplete_reason, capped.incomplete_share)


def test_a_full_disk_leaves_the_raw_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without room for the final file the window fails for want of disk, and the recording is still there.
    """
    folder = traces.put(tmp_path, traces.trace())

    def full(self: object, packed: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stepscope_sidecar.artifacts.kineto._Packed._put", full)
    found = finalise.finalise(job(folder))

    assert ("budget_disk", "[Errno 28] No space left on device") == (found.reason, found.detail)
    assert ["recording.json"] == [path.name for path in folder.iterdir()]
