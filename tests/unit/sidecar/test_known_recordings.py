"""
Recordings of many releases of Kineto, and of the one that is installed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope_sidecar.artifacts import InvalidArtifact, kineto
from tests.unit.sidecar import traces

RECHECKED = 200_000
"""Packed bytes of a shared recording up to which its final file is read again: the largest ones take seconds each."""


def _recordings() -> list[Path]:
    folders = ("kineto", "edge", "generated")
    found = [path for folder in folders for path in (traces.DATA / folder).rglob("*") if path.is_file()]
    return sorted(path for path in found if path.name.endswith((".json", ".gz")))


MENDED = "invalid_quote_in_annotation_name.json"
"""Broken as torch wrote it, by the quotes in one name; it is finalised with that name mended."""


@pytest.mark.skipif(not traces.DATA.is_dir(), reason="the shared recordings are not beside this repository")
def test_every_known_recording_is_accepted_or_named_broken(tmp_path: Path) -> None:
    """
    Files of all releases of Kineto and all accelerators: what independent facts call a trace becomes a final file with
    the same number of events and the same first time stamp; what they call broken is refused.
    """
    facts = json.loads((traces.DATA / "facts.json").read_text())
    recordings = _recordings()
    accepted = 0
    for number, path in enumerate(recordings):
        fact = facts.get(str(path.relative_to(traces.DATA)), {})
        folder = traces.put(tmp_path / str(number), path.read_bytes())
        if path.name == MENDED:
            assert kineto.finalise(folder, traces.closed(), pid=1).events > 0
            continue
        if not fact.get("n_events"):
            with pytest.raises(InvalidArtifact):
                kineto.finalise(folder, traces.closed(), pid=1)
            assert ["recording.json"] == [left.name for left in folder.iterdir()]
            continue
        found = kineto.finalise(folder, traces.closed(), pid=1)
        accepted += 1
        assert fact["n_events"] == found.events, path
        if path.stat().st_size < RECHECKED:
            assert found == kineto.inspect(found.path, traces.closed()), path
            assert found.events == len(traces.read(found.path)["traceEvents"]), path
        if found.first_unix_ns:
            assert abs(fact["first_epoch_ns"] - found.first_unix_ns) <= 250, path

    assert len(recordings) > 50
    assert accepted > 35


def test_a_recording_of_torch_itself_keeps_its_markers(tmp_path: Path) -> None:
    """
    What the installed torch writes has the annotation as it was named, and the clock of its base.
    """
    pytest.importorskip("torch")
    script = (
        "import sys, time, torch\n"
        "from torch.profiler import profile, record_function, ProfilerActivity\n"
        "torch.ones(2)\n"
        "with profile(activities=[ProfilerActivity.CPU]) as p:\n"
        "    print(time.time_ns())\n"
        f"    with record_function('train.update_actor #{traces.SPAN}'):\n"
        "        torch.ones(8) + 1\n"
        "    print(time.time_ns())\n"
        "p.export_chrome_trace(sys.argv[1])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "recording.json")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "KINETO_LOG_LEVEL": "99"},
    )
    before, after = map(int, run.stdout.split())

    found = kineto.finalise(tmp_path, traces.closed(), pid=1)

    assert [] == found.missing
    assert before <= found.first_unix_ns <= found.last_unix_ns <= after
