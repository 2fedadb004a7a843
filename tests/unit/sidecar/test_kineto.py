"""
Checking and completing Kineto's Chrome traces, of any layout, size and state of repair.
"""

import gzip
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope_sidecar.artifacts import kineto, pieces
from stepscope_sidecar.artifacts.kineto import Recording
from stepscope_sidecar.artifacts.pieces import InvalidArtifact
from tests.unit.sidecar import traces

CHUNKS = (64, 1000, pieces.CHUNK)
"""Sizes read at a time: less than an event, a few events, and more than any file here."""


RECHECKED = 200_000
"""Packed bytes of a shared recording up to which its final file is read again: the largest ones take seconds each."""


@pytest.fixture(params=CHUNKS)
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """
    Each size in turn is what is read at a time.
    """
    size: int = request.param
    monkeypatch.setattr(pieces, "CHUNK", size)
    monkeypatch.setattr(pieces.Pieces.__init__, "__kwdefaults__", {"chunk": size})
    return size


def names(folder: Path) -> list[str]:
    """
    What lies in ``folder``.
    """
    return sorted(path.name for path in folder.iterdir())


def finalised(folder: Path, data: bytes, **changes: Any) -> Recording:
    """
    What finalising ``data`` gives.
    """
    return kineto.finalise(traces.put(folder, data), traces.closed(**changes), pid=traces.PID)


@pytest.mark.usefixtures("chunk")
def test_a_sound_recording_becomes_the_final_file(tmp_path: Path) -> None:
    """
    The final file holds every event unchanged; the raw one is gone, and the answer describes the final one.
    """
    data = traces.trace(50)

    found = finalised(tmp_path, data)

    assert ["recording.json.gz"] == names(tmp_path)
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

    assert ([spans[3]], 0.25, "markers_missing") == (found.missing, found.share, found.incomplete)


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


def test_spans_that_the_profiler_did_not_see_whole_are_added(tmp_path: Path) -> None:
    """
    They are clipped to the window, to the nanosecond, on their own thread, and say on which side they were cut.
    """
    spans = [
        traces.continued(-5_000, 1_234_567, span_id="a", name='ro"ll\\out\n'),
        traces.continued(1_999_999_999, 2_000_000_001, span_id="b"),
        traces.continued(3, 0, span_id="c"),
        traces.continued(-10, -5, span_id="d"),
    ]
    spans[2] = replace(spans[2], name="still.open", end_unix_ns=0)

    found = finalised(tmp_path, traces.trace(5), continued=spans)

    text = gzip.decompress(found.path.read_bytes()).decode()
    added = {event["name"]: event for event in traces.read(found.path)["traceEvents"] if event.get("tid") == 77}
    assert {"rollout #000000000000000a", "rollout.generate #000000000000000b", "still.open #000000000000000c"} == set(
        added
    )
    first = added["rollout #000000000000000a"]
    assert ("X", "user_annotation", traces.PID) == (first["ph"], first["cat"], first["pid"])
    assert '"ts":5107424935000.000,"dur":1234.567' in text
    assert '"ts":5107426934999.999,"dur":0.001' in text
    assert '"ts":5107424935000.003,"dur":1999999.997' in text
    assert {"stepscope.continued": True, "stepscope.begun_before": True, "stepscope.ended_after": False} == first[
        "args"
    ]
    assert [False, True] == [
        added["still.open #000000000000000c"]["args"][key]
        for key in ("stepscope.begun_before", "stepscope.ended_after")
    ]
    assert 3 == found.continued


def test_a_continued_span_does_not_stand_for_a_missing_marker(tmp_path: Path) -> None:
    """
    What finalising added is no proof that the profiler recorded it, now or when asked again.
    """
    changes: dict[str, Any] = {"mirrored": ["aa".zfill(16)], "continued": [traces.continued(0, 5)]}

    first = finalised(tmp_path, traces.trace(5), **changes)

    assert ["aa".zfill(16)] == first.missing
    assert first == kineto.finalise(tmp_path, traces.closed(**changes), pid=traces.PID)


def test_a_span_that_the_close_cut_off_is_drawn_once(tmp_path: Path) -> None:
    """
    What the profiler has on its timeline is not added a second time.
    """
    span_id = "ab".zfill(16)
    data = traces.trace(5, spans=(span_id,))
    changes: dict[str, Any] = {"mirrored": [span_id], "continued": [traces.continued(0, 0, span_id=span_id)]}

    found = finalised(tmp_path, data, **changes)
    drawn = [event for event in traces.read(found.path)["traceEvents"] if str(event.get("name")).endswith(span_id)]

    assert 1 == len(drawn)
    assert [] == found.missing


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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=0, max_value=len(traces.trace(8)) - 1), size=st.sampled_from(CHUNKS))
def test_a_file_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int, size: int) -> None:
    """
    Head, middle or tail: whatever is missing is noticed, whichever way it falls into what is read at a time.
    """
    path = traces.put(tmp_path_factory.mktemp("cut"), traces.trace(8)[:cut]) / "recording.json"

    with pytest.raises(InvalidArtifact), path.open("rb") as stream:
        list(pieces.Pieces(stream, chunk=size))


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=8,
    ),
    head=st.dictionaries(st.text(max_size=4), st.text() | st.lists(st.integers()), max_size=3),
    indent=st.sampled_from([None, 0, 2]),
    ascii_only=st.booleans(),
    size=st.integers(1, 200),
)
def test_pieces_are_the_whole_list_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[Any],
    head: dict[str, Any],
    indent: int | None,
    ascii_only: bool,
    size: int,
) -> None:
    """
    Whatever JSON lies in the list, its pieces together are the list, and their text joined by commas is its text.

    Only what is no number, which Python and Kineto write as NaN or Infinity though JSON has no such word, is null.
    """
    whole = {**head, "traceEvents": values, "after": head}
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    path = tmp_path_factory.mktemp("pieces") / "t.json"
    path.write_bytes(text)

    with path.open("rb") as stream:
        found = pieces.Pieces(stream, chunk=size)
        parts = list(found)

    frame = found.frame
    assert _strict(whole) == json.loads(frame.head + b",".join(part.text for part in parts) + b"]" + frame.tail)
    assert len(values) == sum(len(part.events) for part in parts)


def _strict(value: Any) -> Any:
    """
    ``value`` as strict JSON can hold it.
    """
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    assert ["recording.json.gz"] == names(folder)


def _recordings() -> list[Path]:
    folders = ("kineto", "edge", "generated")
    found = [path for folder in folders for path in (traces.DATA / folder).rglob("*") if path.is_file()]
    return sorted(path for path in found if path.name.endswith((".json", ".gz")))


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
        if not fact.get("n_events"):
            with pytest.raises(InvalidArtifact):
                kineto.finalise(folder, traces.closed(), pid=1)
            assert ["recording.json"] == names(folder)
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
