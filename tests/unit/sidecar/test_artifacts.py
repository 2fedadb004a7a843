"""
Which handler makes the final artifact of which tool's recordings, and what becomes of files and folders.
"""

import gzip
import hashlib
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope_sidecar import artifacts, sums
from stepscope_sidecar.artifacts import HANDLERS, InvalidArtifact, engine, other, tree
from stepscope_sidecar.jobs import Job
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import job
from tests.unit.sidecar.stored import listed


def left_by(tool: str, folder: Path, artifact: str) -> Job:
    """
    A job of which ``tool`` has left ``artifact`` in ``folder``.
    """
    return replace(job(folder, artifact=artifact), tool=tool)


def test_each_tool_has_the_handler_of_its_format() -> None:
    """
    Every handler that is named can be imported; what nobody knows is kept as it is.
    """
    assert all(callable(artifacts.handler(tool)) for tool in HANDLERS)
    assert other.make is artifacts.handler("x-mine")
    assert engine.make is artifacts.handler("vllm") is artifacts.handler("http")


def test_an_unknown_recording_is_kept_and_hashed(tmp_path: Path) -> None:
    """
    File or folder: its bytes and hash are told, and that nobody knows whether it is complete.
    """
    (tmp_path / "one.bin").write_bytes(b"abc")
    traces.put(tmp_path / "some" / "b", b"12", name="2")
    traces.put(tmp_path / "some", b"1", name="1")

    file = other.make(left_by("x-mine", tmp_path, "one.bin"))
    folder = other.make(left_by("x-mine", tmp_path, "some"))

    assert (tmp_path / "one.bin", 3, hashlib.sha256(b"abc").hexdigest()) == (file.path, file.bytes, file.sha256)
    assert (tmp_path / "some", 3) == (folder.path, folder.bytes)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in (("1", b"1"), ("b/2", b"12"))}
    assert digests == sums.read((tmp_path / "some.sha256").read_bytes(), sha256=folder.sha256)
    assert {"one.bin", "some", "some.sha256"} == {path.name for path in tmp_path.iterdir()}
    assert (None, None) == (file.verdict.complete, folder.verdict.complete)


def test_a_folders_hash_is_what_sha256sum_prints(tmp_path: Path) -> None:
    """
    Anybody can check it with the tools at hand; it tells names apart, and says nothing of the order on disk.
    """
    for name in ("b", "a/c", "a-b", "a/B"):
        traces.put((tmp_path / name).parent, name.encode(), name=Path(name).name)

    size, sha256 = tree.measure(tmp_path)

    printed = subprocess.run(
        "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout
    assert hashlib.sha256(printed).hexdigest() == sha256
    assert 10 == size
    (tmp_path / "b").rename(tmp_path / "d")
    assert sha256 != tree.measure(tmp_path)[1]


@pytest.mark.parametrize("tool", ["torch", "vllm", "x-mine"])
def test_a_folder_without_files_is_no_artifact(tmp_path: Path, tool: str) -> None:
    """
    An empty folder is nothing, and an empty file is broken.
    """
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()

    with pytest.raises((FileNotFoundError, InvalidArtifact) if tool == "torch" else FileNotFoundError):
        artifacts.handler(tool)(left_by(tool, tmp_path, "empty"))
    with pytest.raises(InvalidArtifact):
        artifacts.handler(tool)(left_by(tool, tmp_path, "file"))


def test_what_is_no_plain_file_in_a_folder_is_refused(tmp_path: Path) -> None:
    """
    A link out of the folder, or a pipe, is no part of a recording.
    """
    folder = traces.put(tmp_path / "linked", b"1")
    (folder / "out").symlink_to("/etc")
    piped = traces.put(tmp_path / "piped", b"1")
    os.mkfifo(piped / "pipe")

    for name in ("linked", "piped"):
        with pytest.raises(InvalidArtifact):
            other.make(left_by("x-mine", tmp_path, name))


def test_the_traces_of_an_engines_workers_become_one_artifact(tmp_path: Path) -> None:
    """
    What a worker has packed is kept as it is, what it has not is packed, anything else stays, and the link is added.
    """
    packed = gzip.compress(traces.trace(5))
    folder = traces.put(tmp_path / "vllm", packed, name="rank0.1.pt.trace.json.gz")
    traces.put(folder, traces.trace(7), name="rank1.2.pt.trace.json")
    traces.put(folder, b"report", name="profiler_out_0.txt")

    found = artifacts.handler("vllm")(left_by("vllm", tmp_path, "vllm"))

    names = {path.name for path in folder.iterdir()}
    assert {
        "rank0.1.pt.trace.json.gz",
        "rank1.2.pt.trace.json.gz",
        "profiler_out_0.txt",
        "stepscope.json",
    } == names
    assert packed == (folder / "rank0.1.pt.trace.json.gz").read_bytes()
    assert (folder, 7 + 9) == (found.path, found.events)
    assert "distributedInfo" not in traces.read(folder / "rank1.2.pt.trace.json.gz")
    assert b'"stepscope.role": "trainer"' in (folder / "stepscope.json").read_bytes()
    assert found == artifacts.handler("vllm")(left_by("vllm", tmp_path, "vllm"))


def test_the_spans_of_our_process_lie_beside_an_engines_traces(tmp_path: Path) -> None:
    """
    The workers know nothing of them; a file has them on the clock of the epoch, and is no trace of a worker's.
    """
    folder = traces.put(tmp_path / "vllm", gzip.compress(traces.trace(5)), name="rank0.pt.trace.json.gz")
    asked = job(tmp_path, artifact="vllm", mirrored=[], continued=[traces.continued(1_000, 6_000)])

    first = engine.make(asked)
    again = engine.make(asked)

    (event,) = json.loads((folder / "stepscope_spans.json").read_text())
    assert "rollout.generate #00000000000000aa" == event["name"]
    assert (traces.OPENED + 1_000) // 1_000 == event["ts"]
    assert first == again
    assert 7 == first.events


def test_one_trace_of_an_engine_keeps_its_name(tmp_path: Path) -> None:
    """
    A single file is the artifact itself, packed if it was not.
    """
    traces.put(tmp_path, traces.trace(5), name="a.pt.trace.json")
    packed = gzip.compress(traces.trace(5))
    traces.put(tmp_path, packed, name="b.pt.trace.json.gz")

    first = artifacts.handler("http")(left_by("http", tmp_path, "a.pt.trace.json"))
    second = artifacts.handler("http")(left_by("http", tmp_path, "b.pt.trace.json.gz"))

    assert ["a.pt.trace.json.gz", "b.pt.trace.json.gz"] == listed(tmp_path)
    assert tmp_path / "a.pt.trace.json.gz" == first.path
    assert packed == second.path.read_bytes()


def test_a_broken_trace_of_an_engine_is_refused(tmp_path: Path) -> None:
    """
    Cut off in the middle, packed or not, or no trace at all: the folder is not taken for a recording.
    """
    whole = gzip.compress(traces.trace(50))
    traces.put(tmp_path / "packed", whole[: len(whole) // 2], name="rank0.pt.trace.json.gz")
    traces.put(tmp_path / "plain", traces.trace(50)[:-100], name="rank0.pt.trace.json")
    traces.put(tmp_path / "none", b"report", name="profiler_out_0.txt")

    for name in ("packed", "plain", "none"):
        with pytest.raises(InvalidArtifact):
            artifacts.handler("vllm")(left_by("vllm", tmp_path, name))
    assert whole[: len(whole) // 2] == (tmp_path / "packed" / "rank0.pt.trace.json.gz").read_bytes()
