"""
Broken and odd recordings: each is flagged with a reason, what is whole in it is read, and none raises.
"""

import gzip
import os
import random
from pathlib import Path

import pytest

from stepscope_sidecar import traces
from stepscope_sidecar.traces import Fault, Kind, Trace
from tests.unit.sidecar import traces as bent
from tests.unit.sidecar.recorded import facts, ns, present
from tests.unit.sidecar.traces import DATA

EXPECTED = {
    "derived/empty.json": Fault.EMPTY,
    "derived/empty.json.gz": Fault.EMPTY,
    "derived/empty_list.json": Fault.NO_EVENTS,
    "derived/empty_object.json": Fault.UNKNOWN_FORMAT,
    "derived/gzip_named_json.json": Fault.NAME_DECEIVES,
    "derived/missing_baseTimeNanoseconds_relative_ts.json.gz": Fault.NO_EPOCH,
    "derived/nan_inf_negative_in_kernels.json": Fault.NOT_FINITE,
    "derived/no_traceEvents.json": Fault.UNKNOWN_FORMAT,
    "derived/non_dict_and_partial_events.json": Fault.NOT_EVENTS,
    "derived/not_json.json": Fault.INVALID,
    "derived/ondemand_distributedInfo_ranks_as_string.json.gz": None,
    "derived/plain_json_named_gz.json.gz": Fault.NAME_DECEIVES,
    "derived/truncated_60pct.json": Fault.TRUNCATED,
    "derived/truncated_60pct.json.gz": Fault.TRUNCATED,
    "derived/ts_dur_as_strings.json": Fault.NUMBERS_AS_TEXT,
    "torch213_real_output/duplicate_toplevel_keys_via_metadata.json": Fault.DUPLICATE_KEYS,
    "torch213_real_output/empty_session.json": Fault.NO_EVENTS,
    "torch213_real_output/invalid_add_metadata_json_raw_text.json": Fault.INVALID,
    "torch213_real_output/invalid_quote_in_add_metadata.json": Fault.INVALID,
    "torch213_real_output/invalid_quote_in_annotation_name.json": Fault.INVALID,
    "torch213_real_output/nan_in_metadata.json": Fault.NOT_FINITE,
    "torch213_real_output/nonascii_names_become_unknown.json": Fault.LOST_NAMES,
    "upstream/hta_large_integer_rank-70.pt.trace.json.gz": Fault.NO_EPOCH,
    "upstream/msinsight_msprof/normal/mindstudio_profiler_output/msprof_20230919172305.json": Fault.EMPTY,
    "upstream/msinsight_msprof/normal/mindstudio_profiler_output/op_summary_20230919172305.csv": Fault.EMPTY,
    "upstream/msinsight_msprof/slice/mindstudio_profiler_output/msprof_slice_0_20230919172304.json": Fault.EMPTY,
    "upstream/msinsight_msprof/slice/mindstudio_profiler_output/msprof_slice_1_20230919172305.json": Fault.EMPTY,
}
"""File below ``edge``, and what is wrong with it; a string of ranks is not, only unusual."""


@present
def test_every_broken_file_is_known_here() -> None:
    """
    No file below ``edge`` is left out of the table.
    """
    found = {path.relative_to(DATA / "edge").as_posix() for path in (DATA / "edge").rglob("*") if path.is_file()}

    assert set(EXPECTED) == found


@present
@pytest.mark.parametrize(("name", "fault"), EXPECTED.items())
def test_a_broken_file_is_flagged_with_a_reason(name: str, fault: Fault | None) -> None:
    """
    What is wrong is flagged in words; a file without a flag has events; those counted in the facts are all there, or
    counted as not placed.
    """
    fact = facts()[f"edge/{name}"]
    trace = traces.open(DATA / "edge" / name)

    assert (fault is None) == (not trace.header.flags)
    assert fault is None or trace.header.has(fault)
    assert all(flag.reason for flag in trace.header.flags)
    assert len(trace) or trace.header.flags
    if "n_events" in fact:
        rows, kernels = trace.rows(Kind.KERNEL), fact.get("kernels", {"count": 0, "sum_us": 0})
        aside = [one for one in trace.header.unplaced if one.kind == Kind.KERNEL]
        assert kernels["count"] == len(rows) + sum(one.count for one in aside)
        length = int(trace.duration_ns[rows].sum()) + sum(one.duration_ns for one in aside)
        assert ns(kernels["sum_us"]) == length
        if "first_epoch_ns" in fact:
            assert fact["first_epoch_ns"] == int(trace.start_ns.min())


@present
def test_what_is_whole_in_a_truncated_file_is_read() -> None:
    """
    Of a file cut off at three fifths, packed or not, the events before the cut are those of the whole file.
    """
    whole = traces.open(DATA / "kineto/hta/a100_cuda_event_sync.json.gz")
    expected = _events(whole)

    for name in ("truncated_60pct.json", "truncated_60pct.json.gz"):
        found = _events(traces.open(DATA / "edge/derived" / name))
        assert expected[: len(found)] == found
        assert 20 < len(found) < len(expected)


@present
def test_a_name_that_is_no_json_costs_nothing_else() -> None:
    """
    The annotation with quotes in its name is there with a plain one.
    """
    trace = traces.open(DATA / "edge/torch213_real_output/invalid_quote_in_annotation_name.json")

    assert "say 'hi'" in trace.names
    assert not any(flag.fault == Fault.TRUNCATED for flag in trace.header.flags)


def test_whatever_happens_to_a_file_nothing_is_raised(tmp_path: Path) -> None:
    """
    A file cut at any place, or with bytes of it changed, packed or not, gives a trace, and one without events a flag.
    """
    chance, text, path = random.Random(5), bent.trace(), tmp_path / "any.json"
    for turn in range(300):
        broken = bytearray(text if turn % 2 else gzip.compress(text, mtime=0))
        if turn % 3:
            for _ in range(chance.randint(1, 4)):
                broken[chance.randrange(len(broken))] = chance.randrange(256)
        else:
            del broken[chance.randrange(len(broken)) :]
        path.write_bytes(broken)
        trace = traces.open(path)
        assert len(trace) or trace.header.flags
        assert all(flag.reason for flag in trace.header.flags)


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    """
    A missing file is the caller's mistake, not a broken recording.
    """
    with pytest.raises(FileNotFoundError):
        traces.open(tmp_path / "nowhere.json")


def test_other_files_are_named_as_such(tmp_path: Path) -> None:
    """
    JSON that is no trace, and bytes of any kind, are flagged.
    """
    contents = (b'{"a": 1}', b"[1, 2]", b'"text"', b"\x80\x04.", b"\x1f\x8b", b"SQLite format 3\0")
    for number, content in enumerate(contents):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(content)
        assert (0, True) == (len(traces.open(path)), bool(traces.open(path).header.flags)), content


def test_numbers_that_no_column_holds_are_left_out(tmp_path: Path) -> None:
    """
    Exponents and digits beyond reason cost the event that has them, in no time, and are flagged.
    """
    odd = ("1e999999999", "9" * 5000, "-1e40", "1e400", '"1e999999999"', '"nan"', "true", "[1]", "1e-400")
    events = [
        f'{{"ph":"X","cat":"kernel","name":"k","ts":{one},"dur":1,"args":{{"correlation":{one}}}}}' for one in odd
    ]
    path = tmp_path / "odd.json"
    path.write_text('{"traceEvents":[' + ",".join(events) + "]}")

    trace = traces.open(path)

    assert (1, 0) == (len(trace), int(trace.start_ns[0]))
    assert trace.header.has(Fault.UNPLACED_EVENTS)
    assert 7 == sum(one.count for one in trace.header.unplaced)
    assert any("1 events are left out" in flag.reason for flag in trace.header.flags)


def _events(trace: Trace) -> list[tuple[str, int, int]]:
    return [(trace.name_of(row), int(trace.start_ns[row]), int(trace.duration_ns[row])) for row in range(len(trace))]


def test_a_folder_of_an_engine_s_workers_is_several_recordings(tmp_path: Path) -> None:
    """
    Each is opened for itself; what finalising has put beside them is none.
    """
    for rank in (0, 1):
        (tmp_path / f"worker-rank{rank}.pt.trace.json.gz").write_bytes(gzip.compress(bent.trace()))
    (tmp_path / "stepscope.json").write_text("{}")

    assert [0, 1] == [trace.header.rank for trace in traces.open_all(tmp_path)]
    assert "2 recordings" in traces.open(tmp_path).header.flags[0].reason
    (tmp_path / "worker-rank1.pt.trace.json.gz").unlink()
    assert 21 == len(traces.open(tmp_path))
    (tmp_path / "worker-rank0.pt.trace.json.gz").unlink()
    assert [Fault.NO_EVENTS] == [flag.fault for trace in traces.open_all(tmp_path) for flag in trace.header.flags]


def test_of_metadata_only_what_is_stepscope_s_own_is_kept(tmp_path: Path) -> None:
    """
    Third-party metadata holds environments: whatever it is, it is in no header and no name.
    """
    path = tmp_path / "recording.json"
    secrets = b'"env": {"TOKEN": "hunter2"}, "username": "hunter2", "stepscope.run": "r1", "displayTimeUnit"'
    path.write_bytes(bent.trace().replace(b'"displayTimeUnit"', secrets, 1))
    trace = traces.open(path)

    assert "r1" == trace.header.metadata["stepscope.run"]
    assert "hunter2" not in repr(trace.header) + repr(trace.names)


@present
def test_a_base_that_was_cut_off_is_missed_and_not_guessed(tmp_path: Path) -> None:
    """
    Some releases write it after the events.
    """
    whole = gzip.decompress((DATA / "kineto/hta/a100_2gpu_rank0_nccl.json.gz").read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(whole[:1_000_000])
    trace = traces.open(path)

    assert trace.header.has(Fault.TRUNCATED)
    assert "cut off" in trace.header.clock_reason
    assert 8 == len(trace.header.devices)
    assert len(trace) > 1000


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """
    Where a pipe stands in place of a recording nobody may ever write to it.
    """
    path = tmp_path / "recording.json"
    os.mkfifo(path)
    trace = traces.open(path)

    assert trace.header.has(Fault.UNREADABLE)
    assert "a pipe" in trace.header.flags[0].reason
