"""
Recordings in speedscope's format, as py-spy 0.4 writes them: checked, told what they are of, and packed.
"""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope import wire
from stepscope_sidecar.artifacts import InvalidArtifact, handler, tree
from stepscope_sidecar.jobs import Job

RAW = "recording.speedscope.json"

SECOND = 1_000_000_000


def recording(**changes: object) -> dict[str, Any]:
    """
    Ten seconds of one thread, sampled a hundred times a second.
    """
    profile = {
        "type": "sampled",
        "name": 'Thread 1 "MainThread"',
        "unit": "seconds",
        "startValue": 0.0,
        "endValue": 10.0,
        "samples": [[0, 1]] * 1000,
        "weights": [0.01] * 1000,
        **changes,
    }
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "profiles": [profile],
        "shared": {"frames": [{"name": name, "file": "a.py", "line": 1, "col": None} for name in ("main", "work")]},
        "activeProfileIndex": None,
        "exporter": "py-spy@0.4.3",
        "name": "py-spy profile",
    }


def job(folder: Path, found: object, *, opened: float = 100.0, closed: float = 110.0, **metadata: str) -> Job:
    """
    A window of ten seconds whose tool left ``found`` (text as it is, anything else as JSON).
    """
    if found is not None:
        (folder / RAW).write_text(found if isinstance(found, str) else json.dumps(found))
    record = wire.Closed(
        window="w",
        reason="boundary",
        version_at_close=5,
        opened_unix_ns=int(opened * SECOND),
        closed_unix_ns=int(closed * SECOND),
        artifact=RAW,
        trace_id="1",
        span_id="2",
        level="",
        metadata={"stepscope.window": "w", "stepscope.step": "5", **{f"stepscope.{k}": v for k, v in metadata.items()}},
    )
    return Job(folder=folder, closed=record, pid=1, tool="py-spy")


def test_the_final_file_is_packed_hashed_and_says_what_it_is_of(tmp_path: Path) -> None:
    """
    The raw one is gone, and the samples are what they were.
    """
    artifact = handler("py-spy")(job(tmp_path, recording(), role="trainer", rank="0"))
    found = json.loads(gzip.decompress(artifact.path.read_bytes()))

    assert [f"{RAW}.gz"] == [path.name for path in tmp_path.iterdir()]
    assert tree.measure(artifact.path) == (artifact.bytes, artifact.sha256)
    assert "step 5 trainer-0 w" == found["name"]
    assert "5" == found["stepscope"]["stepscope.step"]
    assert recording()["profiles"] == found["profiles"]
    assert (1000, 100 * SECOND, 110 * SECOND) == (artifact.events, artifact.first_unix_ns, artifact.last_unix_ns)
    assert artifact.verdict.complete is True


def test_doing_it_again_gives_the_same_file(tmp_path: Path) -> None:
    """
    Also where a crash has left the raw one.
    """
    once = handler("py-spy")(job(tmp_path, recording()))
    again = handler("py-spy")(job(tmp_path, None))
    crashed = handler("py-spy")(job(tmp_path, recording()))

    assert once == again == crashed


def test_what_passed_before_the_tool_recorded_is_a_gap_at_the_head(tmp_path: Path) -> None:
    """
    Its share is that of the step, which began when the process says.
    """
    artifact = handler("py-spy")(
        job(tmp_path, recording(), since_unix_ns=str(90 * SECOND), until_unix_ns=str(110 * SECOND))
    )

    assert (False, "gap_head", 0.5) == (
        artifact.verdict.complete,
        artifact.verdict.reason,
        artifact.verdict.share,
    )
    assert "10.000 s after the step began" in artifact.verdict.detail


def test_a_recording_that_is_too_short_has_a_gap_at_the_tail(tmp_path: Path) -> None:
    """
    Where the process alone says when its window ended. A few samples may be missing.
    """
    less = recording(samples=[[0]] * 600, weights=[0.01] * 600)
    few = recording(samples=[[0]] * 960, weights=[0.01] * 960)
    (tmp_path / "less").mkdir()
    (tmp_path / "few").mkdir()
    verdict = handler("py-spy")(job(tmp_path / "less", less)).verdict

    assert (False, "gap_tail") == (verdict.complete, verdict.reason)
    assert 0.4 == pytest.approx(verdict.share)
    assert handler("py-spy")(job(tmp_path / "few", few)).verdict.complete is True


def test_samples_that_the_tool_came_too_late_for_are_missing(tmp_path: Path) -> None:
    """
    It was on until the end, as the sidecar knows that stopped it.
    """
    less = recording(samples=[[0]] * 600, weights=[0.01] * 600)
    verdict = handler("py-spy")(job(tmp_path, less, until_unix_ns=str(110 * SECOND))).verdict

    assert (False, "samples_missing") == (verdict.complete, verdict.reason)
    assert 0.4 == pytest.approx(verdict.share)


def test_of_two_gaps_the_larger_is_the_reason_and_both_are_told(tmp_path: Path) -> None:
    """
    A share is of one of them.
    """
    less = recording(samples=[[0]] * 500, weights=[0.01] * 500)
    verdict = handler("py-spy")(job(tmp_path, less, since_unix_ns=str(98 * SECOND))).verdict

    assert "gap_tail" == verdict.reason
    assert 5 / 12 == pytest.approx(verdict.share)
    assert "2.000 s after the step began; 5.000 s of samples are missing" in verdict.detail


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ("", "not JSON"),
        ('{"$schema": "https://www.speedscope.app/x", "profiles": [', "not JSON"),
        ("[]", "not a speedscope file"),
        ({"traceEvents": []}, "not a speedscope file"),
        ({**recording(), "profiles": 3}, "not a speedscope file"),
        (recording(samples=[], weights=[]), "no samples"),
        (recording(weights=[0.01]), "no samples with weights"),
        (recording(samples=[[7]] * 1000), "names a frame that is not there"),
        (recording(unit="bytes"), "not a speedscope file"),
        (recording(type="evented"), "no samples with weights"),
    ],
    ids=["empty", "truncated", "list", "other format", "profiles", "no samples", "weights", "frame", "unit", "events"],
)
def test_what_is_no_such_recording_is_refused_and_left_alone(tmp_path: Path, found: object, why: str) -> None:
    """
    With what is wrong.
    """
    with pytest.raises(InvalidArtifact, match=why):
        handler("py-spy")(job(tmp_path, found))

    assert [RAW] == [path.name for path in tmp_path.iterdir()]


def test_no_file_at_all_is_no_artifact(tmp_path: Path) -> None:
    """
    Which the finaliser tells from a broken one.
    """
    with pytest.raises(FileNotFoundError):
        handler("py-spy")(job(tmp_path, None))


def test_a_window_without_a_length_is_not_judged(tmp_path: Path) -> None:
    """
    Nobody can know.
    """
    given = job(tmp_path, recording())
    given = replace(given, closed=replace(given.closed, closed_unix_ns=given.closed.opened_unix_ns))

    assert handler("py-spy")(given).verdict.complete is None
