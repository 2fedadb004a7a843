"""
Folders of torch_npu and msprof become final artifacts, and are told to be whole or not.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar.artifacts import Artifact, InvalidArtifact, ascend, handler
from tests.unit.sidecar import ascends, traces

MARK = f"train.update_actor #{traces.SPAN}"
OTHER = "00000000000000aa"


def _make(folder: Path, **changes: Any) -> Artifact:
    return ascend.make(ascends.job(folder, **changes))


@pytest.mark.parametrize("tool", ["torch_npu", "msprof"])
def test_both_tools_have_this_handler(tool: str) -> None:
    """
    The finaliser finds it by the tool's name.
    """
    assert ascend.make is handler(tool)


def test_a_raw_folder_is_kept_and_linked(tmp_path: Path) -> None:
    """
    It says which window it is of, its hash covers that too, and whether it is whole nobody can know yet.
    """
    path = ascends.raw(ascends.torch_npu(tmp_path))

    made = _make(tmp_path)

    files = sorted((file for file in path.rglob("*") if file.is_file()), key=lambda file: str(file.relative_to(path)))
    lines = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(path)}\n" for file in files)
    assert path == made.path
    assert sum(file.stat().st_size for file in files) == made.bytes
    assert hashlib.sha256(lines.encode()).hexdigest() == made.sha256
    assert traces.closed().metadata == json.loads((path / "stepscope.json").read_text())
    assert None is made.verdict.complete
    assert made.verdict.detail.startswith("raw data")
    assert frozenset({3}) == ascend.inspect(path).folder.devices


def test_doing_it_again_gives_the_same(tmp_path: Path) -> None:
    """
    Also where a first try was cut off while it wrote.
    """
    path = ascends.torch_npu(tmp_path)
    ascends.database(path, marks=(MARK,))
    first = _make(tmp_path, mirrored=[traces.SPAN])
    (path / "stepscope.json.partial").write_text("{")

    assert first == _make(tmp_path, mirrored=[traces.SPAN])


def test_tasks_are_counted_and_timed(tmp_path: Path) -> None:
    """
    Of an analysed folder the tasks, the kernels among them, their times and the session are known.
    """
    path = ascends.torch_npu(tmp_path)
    ascends.database(path, marks=(MARK,))

    made, found = _make(tmp_path, mirrored=[traces.SPAN]), ascend.inspect(path)

    last = traces.OPENED + ascends.TASKS * ascends.LENGTH
    assert (True, "", None) == (made.verdict.complete, made.verdict.reason, made.verdict.share)
    assert (ascends.TASKS, traces.OPENED, last) == (made.events, made.first_unix_ns, made.last_unix_ns)
    assert (ascends.TASKS // 2, ascends.TASKS // 2 * ascends.LENGTH) == (found.tasks.kernels, found.tasks.kernel_ns)
    assert (traces.OPENED, traces.CLOSED) == found.session_unix_ns
    assert {3} == found.tasks.devices


@pytest.mark.parametrize(
    ("lost", "reason", "share"),
    [
        ((0, 1, 2), "kernels_missing_head", 0.3),
        ((8, 9), "kernels_missing_tail", 0.2),
        ((4,), "kernels_missing", 0.1),
        (tuple(range(ascends.TASKS)), "kernels_missing", 1.0),
    ],
)
def test_launches_without_a_task_are_missed(tmp_path: Path, lost: tuple[int, ...], reason: str, share: float) -> None:
    """
    What the host has launched and the device has not run is missing: how much of it, and at which end.
    """
    ascends.database(ascends.torch_npu(tmp_path), lost=lost)

    verdict = _make(tmp_path).verdict

    assert (False, reason, share) == (verdict.complete, verdict.reason, verdict.share)


@pytest.mark.parametrize("add", [ascends.database, ascends.timeline])
def test_marks_are_looked_for(tmp_path: Path, add: Callable[..., Path]) -> None:
    """
    In a database among its strings, in a timeline among its events; a span without one is missing.
    """
    add(ascends.torch_npu(tmp_path), marks=(MARK, "train.wait_samples #00000000000000bb"))

    whole = _make(tmp_path, mirrored=[traces.SPAN.upper()]).verdict
    half = _make(tmp_path, mirrored=[traces.SPAN, OTHER]).verdict

    assert True is whole.complete
    assert (False, "markers_missing", 0.5) == (half.complete, half.reason, half.share)


@pytest.mark.parametrize(
    ("begin", "end", "reason", "share"),
    [(500_000_000, 0, "gap_head", 0.25), (0, -1_000_000_000, "gap_tail", 0.5)],
)
def test_a_session_that_was_not_on_leaves_a_gap(
    tmp_path: Path, begin: int, end: int, reason: str, share: float
) -> None:
    """
    Raw or analysed: the session's own clock says from when to when it was on.
    """
    told = ascends.info(begin=traces.OPENED + begin, end=traces.CLOSED + end)
    ascends.raw(ascends.torch_npu(tmp_path, told))

    verdict = _make(tmp_path).verdict

    assert (False, reason, share) == (verdict.complete, verdict.reason, verdict.share)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 3 // 5])


@pytest.mark.parametrize(
    ("add", "spoil", "complaint"),
    [
        (ascends.database, _cut, "ascend_pytorch_profiler_1.db is cut off"),
        (ascends.database, lambda file: file.write_bytes(b""), "ascend_pytorch_profiler_1.db is cut off"),
        (ascends.database, lambda file: file.write_bytes(b"\0" * 4096), "ascend_pytorch_profiler_1.db: file is not"),
        (ascends.table, lambda file: file.write_bytes(b""), "kernel_details.csv has no columns of times"),
        (ascends.table, _cut, "kernel_details.csv is cut off in row 2"),
        (ascends.table, lambda file: file.write_bytes(file.read_bytes().replace(b"7.250", b"x")), "csv, row 1: "),
        (ascends.timeline, _cut, "trace_view.json: "),
        (ascends.timeline, lambda file: file.write_bytes(b""), "trace_view.json: "),
        (ascends.timeline, Path.unlink, "no events in ASCEND_PROFILER_OUTPUT"),
    ],
)
def test_what_is_cut_off_is_named(
    tmp_path: Path, add: Callable[[Path], Path], spoil: Callable[[Path], object], complaint: str
) -> None:
    """
    The folder is kept, because what is whole in it is worth it; it is told which of its files is not.
    """
    spoil(add(ascends.torch_npu(tmp_path)))

    verdict = _make(tmp_path).verdict

    assert (False, "truncated", None) == (verdict.complete, verdict.reason, verdict.share)
    assert complaint in verdict.detail


@pytest.mark.parametrize(
    ("host", "device", "complaint"), [(False, 3, "no data of the host"), (True, None, "no data of a device")]
)
def test_raw_data_that_should_be_there_is_missed(
    tmp_path: Path, host: bool, device: int | None, complaint: str
) -> None:
    """
    What the session was to record and left no data of.
    """
    ascends.raw(ascends.torch_npu(tmp_path), host=host, device=device)

    verdict = _make(tmp_path).verdict

    assert (False, "truncated", complaint) == (verdict.complete, verdict.reason, verdict.detail)


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    """
    Nothing there, a file, a folder that was never stopped, one whose description cannot be read, a link out.
    """
    with pytest.raises(FileNotFoundError):
        _make(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidArtifact, match="not a folder"):
        _make(tmp_path, artifact="file")
    path = ascends.raw(ascends.torch_npu(tmp_path))
    (path / "profiler_info_1.json").write_text("{")
    with pytest.raises(InvalidArtifact, match="not JSON"):
        _make(tmp_path)
    (path / "profiler_info_1.json").write_text(" " * (2 << 20))
    with pytest.raises(InvalidArtifact, match="more than"):
        _make(tmp_path)
    (path / "profiler_info_1.json").write_text(json.dumps(ascends.info()))
    (path / "FRAMEWORK" / "out").symlink_to("/etc")
    with pytest.raises(InvalidArtifact, match="neither a plain file nor a folder"):
        _make(tmp_path)
    (tmp_path / "unstopped_ascend_pt" / "FRAMEWORK").mkdir(parents=True)
    (tmp_path / "unstopped_ascend_pt" / "FRAMEWORK" / "torch.op_range").write_bytes(b"x")
    with pytest.raises(InvalidArtifact, match="not stopped in order"):
        _make(tmp_path, artifact="unstopped_ascend_pt")

    assert not list(tmp_path.rglob("stepscope.json"))


def test_without_clocks_nothing_is_judged_by_them(tmp_path: Path) -> None:
    """
    A folder of 2023 says when it ended and not when it began; one may say nothing at all.
    """
    for number, told in enumerate([ascends.info(start_info=None), {"config": 7, "end_info": []}, {"x": 0}, []]):
        path = ascends.torch_npu(tmp_path / str(number))
        next(path.glob("profiler_info*.json")).write_text(json.dumps(told))
        ascends.database(path)

        assert (0, 0) == ascend.inspect(path).session_unix_ns
        assert None is _make(tmp_path / str(number)).verdict.complete


def test_a_database_is_left_as_it_was(tmp_path: Path) -> None:
    """
    One that a viewer has put into WAL mode gains no file by being read, and a view in it is not asked.
    """
    path = ascends.torch_npu(tmp_path)
    file = ascends.database(path)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE COMPUTE_TASK_INFO")
        connection.execute("CREATE VIEW COMPUTE_TASK_INFO AS SELECT globalTaskId FROM TASK")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.commit()
    before = {one.name: one.read_bytes() for one in file.parent.iterdir()}

    made = _make(tmp_path)

    assert before == {one.name: one.read_bytes() for one in file.parent.iterdir()}
    assert (ascends.TASKS, True) == (made.events, made.verdict.complete)
    assert 0 == ascend.inspect(path).tasks.kernels


def test_a_database_of_other_columns_is_named(tmp_path: Path) -> None:
    """
    A release that calls its columns otherwise is not taken for an empty one.
    """
    file = ascends.database(ascends.torch_npu(tmp_path))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("ALTER TABLE TASK RENAME COLUMN startNs TO start_ns")

    assert "no such column: startNs" in _make(tmp_path).verdict.detail


def test_times_of_a_table_are_exact(tmp_path: Path) -> None:
    """
    Text in microseconds becomes nanoseconds to the last digit; collectives are tasks and no kernels.
    """
    path = ascends.torch_npu(tmp_path)
    ascends.table(path)

    found = ascend.inspect(path).tasks

    assert (3, 2, 7750) == (found.count, found.kernels, found.kernel_ns)
    assert traces.OPENED == found.first_unix_ns
    assert (traces.OPENED // 1000 + 1020) * 1000 == found.last_unix_ns


@pytest.mark.parametrize("analysed", [False, True])
def test_a_folder_of_msprof(tmp_path: Path, analysed: bool) -> None:
    """
    It holds a PROF_ folder for each start and stop; what was analysed in slices is added up.
    """
    path = tmp_path / "msprof"
    for number in (1, 2):
        data = path / f"PROF_00000{number}_20260101000000000_ABCDEF"
        (data / "device_0" / "data").mkdir(parents=True)
        (data / "device_0" / "data" / "ts_track.data.0.slice_0").write_bytes(b"\0")
        if analysed:
            output = "mindstudio_profiler_output"
            ascends.table(data, name=f"{output}/op_summary_slice_0_20260101000000.csv")
            ascends.timeline(data, name=f"{output}/msprof_20260101000000.json")

    made = _make(tmp_path, tool="msprof", artifact="msprof")

    assert (6 if analysed else 0, None) == (made.events, made.verdict.complete)
    assert (path / "stepscope.json").is_file()
    assert None is ascend.inspect(path).folder.info


def test_msprof_that_has_recorded_nothing(tmp_path: Path) -> None:
    """
    A PROF_ folder without data of a device is no whole recording.
    """
    data = tmp_path / "msprof" / "PROF_000001_20260101000000000_ABCDEF" / "host"
    data.mkdir(parents=True)
    (data / "end_info").write_text("{}")

    verdict = _make(tmp_path, tool="msprof", artifact="msprof").verdict

    assert (False, "truncated", "no data of a device") == (verdict.complete, verdict.reason, verdict.detail)


def test_spans_without_a_mark_are_put_beside_it(tmp_path: Path) -> None:
    """
    On the clock of the timelines, clipped to the window; one that was cut off has its mark. Without any, no file.
    """
    path = ascends.raw(ascends.torch_npu(tmp_path))
    _make(tmp_path, mirrored=[traces.SPAN], continued=[traces.continued(0, 5, span_id=traces.SPAN)])
    assert not (path / "stepscope_spans.json").exists()

    _make(tmp_path, continued=[traces.continued(-1_000_000, 2_000_000, span_id=OTHER)])

    [event] = json.loads((path / "stepscope_spans.json").read_text(), parse_float=str)
    assert f"{traces.OPENED // 1000}.{traces.OPENED % 1000:03d}" == event["ts"]
    assert ("2000.000", f"rollout.generate #{OTHER}") == (event["dur"], event["name"])


@pytest.mark.parametrize("names", [(ascends.NAME,), ("w_tp0_1_2_ascend_pt", "w_tp1_1_2_ascend_pt")])
def test_what_the_workers_of_an_engine_leave(tmp_path: Path, names: tuple[str, ...]) -> None:
    """
    Each leaves a folder: alone it is the artifact, several lie in one. No span of ours is expected in them.
    """
    for name in names:
        ascends.database(ascends.torch_npu(tmp_path / "traces", name=name))
    artifact = "traces" if len(names) > 1 else names[0]
    if len(names) == 1:
        (tmp_path / "traces" / artifact).rename(tmp_path / artifact)

    made = handler("vllm")(ascends.job(tmp_path, tool="vllm", artifact=artifact, mirrored=[traces.SPAN]))

    assert (tmp_path / artifact, ascends.TASKS * len(names), True) == (made.path, made.events, made.verdict.complete)
    assert (tmp_path / artifact / "stepscope.json").is_file()


def test_the_environment_stays_in_the_folder(tmp_path: Path) -> None:
    """
    What a recording says of the environment is in nothing that is told of it, and not in the file beside it.
    """
    path = ascends.torch_npu(tmp_path)
    ascends.database(path)

    made = _make(tmp_path, mirrored=[traces.SPAN])

    assert ascends.SECRET in (path / "profiler_metadata.json").read_text()
    assert ascends.SECRET not in repr((replace(made), ascend.inspect(path)))
    assert ascends.SECRET not in (path / "stepscope.json").read_text()
