"""
Checking and completing Kineto's Chrome traces, of any layout, size and state of repair.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope_sidecar.artifacts import InvalidArtifact, kineto, pieces
from stepscope_sidecar.artifacts.completeness import judge
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import finalised
from tests.unit.sidecar.stored import listed

CHUNKS = (64, 1000, pieces.CHUNK)
"""Sizes read at a time: less than an event, a few events, and more than any file here."""


@pytest.fixture(params=CHUNKS)
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """
    Each size in turn is what is read at a time.
    """
    size: int = request.param
    monkeypatch.setattr(pieces, "CHUNK", size)
    monkeypatch.setattr(
        pieces.Pieces.__init__, "__kwdefaults__", {**(pieces.Pieces.__init__.__kwdefaults__ or {}), "chunk": size}
    )
    return size


@pytest.mark.usefixtures("chunk")
def test_a_sound_recording_becomes_the_final_file(tmp_path: Path) -> None:
    """
    The final file holds every event unchanged; the raw one is gone, and the answer describes the final one.
    """
    data = traces.trace(50)

    found = finalised(tmp_path, data)

    assert ["recording.json.gz"] == listed(tmp_path)
    assert json.loads(data)["traceEvents"] == traces.read(found.path)["traceEvents"]
    assert (52, 1, []) == (found.events, found.expected, found.missing)
    assert traces.OPENED + 1_000_000 == found.first_unix_ns
    assert traces.OPENED + 1_000_000 + 50 * 10_000 + 7_500 == found.last_unix_ns
    assert found.bytes == found.path.stat().st_size


def test_the_text_around_events_is_kept_byte_for_byte(tmp_path: Path) -> None:
    """
    Numbers and layout of the raw file reach the final one as they were written.
    """
    data = traces.trace(50)

    text = gzip.decompress(finalised(tmp_path, data).path.read_bytes())

    assert data.lstrip().rpartition(b"}\n  ]")[0] == text.rpartition(b"}\n  \n]")[0]


@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"separators": (",", ":")}, {"sort_keys": True, "indent": 4}])
@pytest.mark.usefixtures("chunk")
def test_any_layout_of_the_same_json_is_accepted(tmp_path: Path, options: dict[str, Any]) -> None:
    """
    Spaces, indents and the order of keys, metadata behind the events included, make no difference.
    """
    whole = json.loads(traces.trace(50))
    whole["traceEvents"].append({"ph": "X", "name": "nested", "args": {"list": [{"a": {}}, {"b": [{}, {}]}, {}]}})
    data = json.dumps(whole, **options).encode()

    found = finalised(tmp_path, data)

    assert whole["traceEvents"] == traces.read(found.path)["traceEvents"]
    assert "vm" == found.metadata["host_name"]
    assert [] == found.missing


@pytest.mark.usefixtures("chunk")
def test_a_bare_list_of_events_becomes_an_object(tmp_path: Path) -> None:
    """
    The format of 2020 has no room for metadata, so it gets some; absolute time stamps need no base.
    """
    event = {"ph": "X", "cat": "Operator", "name": 'a, } { \\" ]', "ts": 1_700_000_000_000_000, "dur": 5, "pid": 1}

    found = finalised(tmp_path, json.dumps([event] * 3).encode(), mirrored=[])

    whole = traces.read(found.path)
    assert [event] * 3 == whole["traceEvents"]
    assert "5" == whole["stepscope.step"]
    assert (1_700_000_000_000_000_000, 1_700_000_000_000_005_000) == (found.first_unix_ns, found.last_unix_ns)


def test_markers_that_are_not_on_the_timeline_are_missing(tmp_path: Path) -> None:
    """
    Of the spans that were mirrored, those without their annotation are named, and their share told.
    """
    spans = [f"{number:016x}" for number in range(4)]

    found = finalised(tmp_path, traces.trace(5, spans=tuple(spans[:3])), mirrored=spans)

    verdict = judge([found], traces.closed())
    assert ([spans[3]], False, 0.25, "markers_missing") == (
        found.missing,
        verdict.complete,
        verdict.share,
        verdict.reason,
    )


def test_metadata_is_added_where_the_profiler_did_not_write_it(tmp_path: Path) -> None:
    """
    Keys that are there keep their value; the rest of the close record's is added, and so is distributedInfo.
    """
    data = traces.trace(5).replace(b'"stepscope.step": "5"', b'"stepscope.step": "7"')

    found = kineto.finalise(traces.put(tmp_path, data), traces.closed(), pid=traces.PID, world_size=2)

    whole = traces.read(found.path)
    assert ("7", "trainer", "1") == tuple(whole[f"stepscope.{key}"] for key in ("step", "role", "rank"))
    assert {"rank": 1, "world_size": 2} == whole["distributedInfo"]


def test_distributed_info_of_torch_is_kept(tmp_path: Path) -> None:
    """
    What torch.distributed wrote about ranks is better than what we know.
    """
    data = traces.trace(5).replace(b'"host_name"', b'"distributedInfo": {"backend": "gloo", "rank": 3}, "host_name"')

    whole = traces.read(finalised(tmp_path, data).path)

    assert {"backend": "gloo", "rank": 3} == whole["distributedInfo"]


def test_words_that_json_does_not_know_become_null(tmp_path: Path) -> None:
    """
    NaN and Infinity, which Kineto writes and viewers refuse, are replaced; strings that hold the words are not.
    """
    data = traces.trace(5).replace(b'"host_name": "vm"', b'"host_name": "NaN Infinity", "loss": NaN, "x": [-Infinity]')
    data = data.replace(b'"dur": 7.500', b'"dur": NaN', 1)

    whole = traces.read(finalised(tmp_path, data).path)

    assert ("NaN Infinity", None, [None]) == (whole["host_name"], whole["loss"], whole["x"])
    assert whole["traceEvents"][1]["dur"] is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  \n",
        b"{}",
        b"[]",
        b"[1, 2]",
        b"not json",
        b'"traceEvents"',
        b'{"traceEvents": null}',
        b'{"traceEvents": {}}',
        b'{"traceEvents": []}',
        b'{"x": "traceEvents", "y": [{"traceEvents": [{"ph": "X"}]}]}',
        b'{"traceEvents": [{"ph": "X"},]}',
        b'{"traceEvents": [,{"ph": "X"}]}',
        b'{"traceEvents": [{"ph": "X"}] "a": 1}',
        b'{"traceEvents": [{"ph": "X"}]} {}',
        b'{"traceEvents": [{"ph": "X"}], "traceEvents": [{"ph": "X"}]}',
        b'[{"ph": "X"}] x',
        b'[{"ph": "X"}',
        b'{"a": nope, "traceEvents": [{"ph": "X"}]}',
        b'{"traceEvents": [{"ph": "X", "name": "say "hi""}]}',
        b'{"traceEvents": [{"ph": "X", "name": "\xff"}]}',
        b"\x1f\x8b\x08\x00",
    ],
)
@pytest.mark.usefixtures("chunk")
def test_what_is_no_trace_is_refused_and_kept(tmp_path: Path, data: bytes) -> None:
    """
    The reason is told, the raw file is left as it was and nothing half-written lies beside it.
    """
    with pytest.raises(InvalidArtifact):
        finalised(tmp_path, data)

    assert {"recording.json": data} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["", "..", "../recording.json", "/etc/passwd", "sub/recording.json"])
def test_only_a_file_in_the_windows_folder_is_taken(tmp_path: Path, name: str) -> None:
    """
    A close record cannot name a file elsewhere.
    """
    with pytest.raises(InvalidArtifact):
        kineto.finalise(tmp_path, traces.closed(artifact=name), pid=1)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """
    A raw recording that is a symbolic link is refused.
    """
    elsewhere = traces.put(tmp_path / "elsewhere", traces.trace()) / "recording.json"
    folder = tmp_path / "window"
    folder.mkdir()
    (folder / "recording.json").symlink_to(elsewhere)

    with pytest.raises(InvalidArtifact):
        kineto.finalise(folder, traces.closed(), pid=1)


def test_nothing_there_is_told_apart_from_something_broken(tmp_path: Path) -> None:
    """
    A folder with neither a raw nor a final file has no artifact.
    """
    with pytest.raises(FileNotFoundError):
        kineto.finalise(tmp_path, traces.closed(), pid=1)


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(0, 30),
    marked=st.integers(0, 3),
    mirrored=st.integers(0, 5),
    spans=st.lists(st.tuples(st.integers(-(10**9), 3 * 10**9), st.integers(0, 10**9)), max_size=4),
    stage=st.sampled_from(["raw again", "partial left", "final only"]),
)
def test_finalising_again_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    marked: int,
    mirrored: int,
    spans: list[tuple[int, int]],
    stage: str,
) -> None:
    """
    Wherever a crash fell, doing it again ends with the same bytes and the same answer.
    """
    ids = [f"{number:016x}" for number in range(5)]
    record = traces.closed(
        mirrored=ids[:mirrored],
        continued=[
            traces.continued(start, start + length, span_id=f"{number:016x}")
            for number, (start, length) in enumerate(spans)
        ],
    )
    data = traces.trace(count, spans=tuple(ids[:marked]))
    folder = traces.put(tmp_path_factory.mktemp("again"), data)
    first = kineto.finalise(folder, record, pid=traces.PID, world_size=2)
    if stage == "raw again":
        traces.put(folder, data)
    elif stage == "partial left":
        traces.put(folder, data)
        (folder / "recording.json.gz").unlink()
        (folder / "recording.json.gz.partial").write_bytes(b"half")

    again = kineto.finalise(folder, record, pid=traces.PID, world_size=2)

    assert first == again
    assert ["recording.json.gz"] == listed(folder)
