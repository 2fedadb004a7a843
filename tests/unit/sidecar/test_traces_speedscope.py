"""
Sampled stacks, read as calls.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from stepscope_sidecar import traces
from stepscope_sidecar.artifacts import speedscope
from stepscope_sidecar.traces import Clock, Fault, Kind
from tests.unit.sidecar import test_speedscope as recordings

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def _file(path: Path, profile: dict[str, Any], **more: object) -> Path:
    frames = [{"name": "main", "file": "/home/somebody/job.py", "line": 3}, {"name": "step"}, {"name": "wait"}]
    path.write_text(json.dumps({"$schema": SCHEMA, "shared": {"frames": frames}, "profiles": [profile], **more}))
    return path


def test_samples_one_after_the_other_are_one_call(tmp_path: Path) -> None:
    """
    A frame lasts as long as it is in the samples with the same callers; of a file only its own name is kept.
    """
    profile = {
        "type": "sampled",
        "name": 'Process 41 "python" Thread 42 "MainThread"',
        "unit": "seconds",
        "startValue": 0.5,
        "samples": [[0, 1], [0, 1], [0, 2], [], [0, 1]],
        "weights": [0.01, 0.01, 0.02, 0.01, 0.01],
    }
    trace = traces.open(_file(tmp_path / "a.json", profile))
    ms = 1_000_000

    assert [
        ("job.py(3): main", 500 * ms, 40 * ms),
        ("step", 500 * ms, 20 * ms),
        ("wait", 520 * ms, 20 * ms),
        ("job.py(3): main", 550 * ms, 10 * ms),
        ("step", 550 * ms, 10 * ms),
    ] == [(trace.name_of(row), int(trace.start_ns[row]), int(trace.duration_ns[row])) for row in range(len(trace))]
    assert {Kind.PYTHON} == set(trace.kind.tolist())
    assert (41, 42) == (int(trace.pid[0]), int(trace.tid[0]))
    assert (Clock.RELATIVE, True) == (trace.header.clock, trace.header.has(Fault.NO_EPOCH))


def test_entered_stacks_are_calls_as_they_are(tmp_path: Path) -> None:
    """
    What is open at the end lasts until then.
    """
    events = [
        {"type": "O", "at": 1, "frame": 0},
        {"type": "O", "at": 2, "frame": 1},
        {"type": "C", "at": 4, "frame": 1},
    ]
    profile = {"type": "evented", "name": "t", "unit": "milliseconds", "startValue": 0, "endValue": 9, "events": events}
    trace = traces.open(_file(tmp_path / "a.json", profile))

    assert [(1_000_000, 8_000_000), (2_000_000, 2_000_000)] == list(
        zip(trace.start_ns.tolist(), trace.duration_ns.tolist(), strict=True)
    )


def test_our_own_recordings_are_on_the_clock_of_the_epoch(tmp_path: Path) -> None:
    """
    The finalised file says when its tool began, so that its calls can be laid beside spans.
    """
    job = recordings.job(tmp_path, recordings.recording(), rank="2")
    trace = traces.open(speedscope.make(job).path)

    assert (Clock.EPOCH, (), 2) == (trace.header.clock, trace.header.flags, trace.header.rank)
    assert job.closed.opened_unix_ns == int(trace.start_ns.min())
    assert "5" == trace.header.metadata["stepscope.step"]


def test_a_broken_file_is_flagged(tmp_path: Path) -> None:
    """
    Frames that are not there, no samples, and half a file are said, not raised.
    """
    profile = {"type": "sampled", "name": "t", "unit": "seconds", "samples": [[7]], "weights": [1]}
    assert traces.open(_file(tmp_path / "a.json", profile)).header.has(Fault.INVALID)
    profile.update(samples=[], weights=[])
    path = _file(tmp_path / "b.json", profile)
    assert traces.open(path).header.has(Fault.NO_EVENTS)
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    assert traces.open(tmp_path / "c.json.gz").header.flags
