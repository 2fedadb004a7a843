"""
Artifacts that are no good, through a real sidecar: the window ends with its reason, and the metric counts it.
"""

import fcntl
import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from stepscope import wire
from stepscope_sidecar.reader import open_reader

from .agent import RECORDING, Agent
from .jobs import FINAL, SETTLE_DEADLINE, command_of, eventually
from .place import Place, placed

WHOLE = json.dumps(RECORDING).encode()
PACKED = gzip.compress(WHOLE)
FINALISER = "stepscope_sidecar.finalise"

FILES = {
    "empty": (b"", "artifact_invalid"),
    "truncated": (WHOLE[:-20], "artifact_invalid"),
    "not json": (b"profiling failed", "artifact_invalid"),
    "another's json": (b'{"nodes": []}', "artifact_invalid"),
    "no events": (b'{"traceEvents": []}', "artifact_invalid"),
    "truncated gzip": (PACKED[:-20], "artifact_invalid"),
    "missing": (None, "no_artifact"),
}
"""What a profiler leaves instead of a recording, and how its window ends."""

FOLDERS: dict[str, tuple[dict[str, bytes], str]] = {
    "no file": ({}, "no_artifact"),
    "no trace": ({"profiler_out_0.txt": b"report"}, "artifact_invalid"),
    "one truncated": ({"rank0.json.gz": PACKED, "rank1.json.gz": PACKED[:-20]}, "artifact_invalid"),
}
"""The same for a folder that an engine's workers have written into."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """
    An attempt with steps 1-9 selected, and an engine's profiler for the rollouter.
    """
    found = placed(tmp_path)
    found.env |= {"STEPSCOPE_STEPS": "1-9", "STEPSCOPE_TOOLS": "trainer=torch,rollouter=http"}
    return found


def left(agent: Agent, step: int, files: dict[str, bytes], *, artifact: str) -> str:
    """
    Record ``step``, leave ``files`` in the window's folder, and close it; the window.
    """
    grant = agent.open(step)
    record = replace(agent.write(grant), artifact=artifact)
    folder = Path(grant.folder)
    (folder / "recording.json").unlink()
    (folder / artifact).parent.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "closed.json").write_bytes(wire.encode(record))
    agent.send(record)
    return grant.window


def ended(place: Place, agent: Agent, count: int) -> dict[str, tuple[str, str]]:
    """
    State and reason of all ``count`` windows, once they are final; the process leaves, so nothing stands back for it.
    """
    agent.send(wire.Bye())

    def final() -> list[tuple[str, str, str]]:
        rows = [(row.window, row.state, row.reason) for row in place.windows()]
        return rows if len(rows) == count and {row[1] for row in rows} <= FINAL else []

    return {window: (state, reason) for window, state, reason in eventually(final, deadline=SETTLE_DEADLINE)}


def test_files_that_are_no_recordings(place: Place) -> None:
    """
    Each ends its own window and nobody else's; what there was is kept, and the sidecar goes on.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        expected = {}
        for step, (data, reason) in enumerate(FILES.values(), 1):
            files = {} if data is None else {"recording.json": data}
            expected[left(agent, step, files, artifact="recording.json")] = ("failed", reason)
        expected[left(agent, 9, {"recording.json": WHOLE}, artifact="recording.json")] = ("ready", "boundary")
        found = ended(place, agent, len(expected))

    assert expected == found
    with open_reader(place.attempt / "stepscope.db") as reader:
        totals = reader.totals()
    counts = [
        totals.value("stepscope_windows_total", role="trainer", tool="torch", outcome=state)
        for state in ("failed", "ready")
    ]
    assert [7.0, 1.0] == counts
    kept = [path.read_bytes() for path in place.attempt.rglob("recording.json")]
    assert sorted(data for data, _ in FILES.values() if data is not None) == sorted(kept)


def test_folders_that_are_no_recordings(place: Place) -> None:
    """
    A folder counts by what is in it, and each file of an engine's workers has to be whole.
    """
    with place.sidecar(), Agent(place.socket, role="rollouter", tools={"http": ""}) as agent:
        agent.register()
        expected = {}
        for step, (files, reason) in enumerate(FOLDERS.values(), 1):
            inside = {f"vllm/{name}": data for name, data in files.items()}
            window = left(agent, step, inside, artifact="vllm")
            expected[window] = ("failed", reason)
        good = left(agent, 9, {"vllm/rank0.json.gz": PACKED, "vllm/rank1.json": WHOLE}, artifact="vllm")
        found = ended(place, agent, len(expected) + 1)

    assert {**expected, good: ("ready", "boundary")} == found
    with open_reader(place.attempt / "stepscope.db") as reader:
        failed = reader.totals().value("stepscope_windows_total", role="rollouter", tool="http", outcome="failed")
        (row,) = [row for row in reader.windows() if row.window == good]
    assert 3.0 == failed
    assert (place.folder / row.artifact).is_dir()
    assert (64, True) == (len(row.sha256), row.bytes > len(PACKED))


def test_a_finalising_child_that_is_killed_is_tried_again(place: Place) -> None:
    """
    The recording is not to blame for it: the window is ready in the end.
    """
    with place.sidecar() as process, Agent(place.socket) as agent:
        agent.register()
        grant = agent.open(5)
        record = agent.write(grant)
        lock = os.open(grant.folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            agent.send(record)
            sidecar = psutil.Process(process.pid)
            child = eventually(lambda: [one for one in sidecar.children() if FINALISER in command_of(one)])[0]
            child.kill()
            eventually(lambda: not child.is_running())
        finally:
            os.close(lock)
        agent.send(wire.Bye())
        row = place.settled("ready")

    assert "boundary" == row.reason
