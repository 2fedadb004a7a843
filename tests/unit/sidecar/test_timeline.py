"""
``stepscope merge``: a step as one timeline, checked by a reader that knows the format and nothing of ours.
"""

import gzip
import json
from pathlib import Path

import pytest

from stepscope_sidecar import cli
from stepscope_sidecar.errors import MergeError
from stepscope_sidecar.timeline import merge, told
from stepscope_sidecar.timeline.merging import Merged
from tests.unit.sidecar.merging import MS, RUN, Run, request
from tests.unit.sidecar.traces import BASE, EVENT, OPENED, PID, SPAN, trace

SECOND = 1000 * MS


def removed(*_: object, **__: object) -> int:
    """
    Fail as reading does where retention was faster.
    """
    raise FileNotFoundError(2, "No such file or directory", "gone.json.gz")


def step(run: Run) -> None:
    """
    Step 5 of a trainer and a rollouter: requests of this step and the one before, and what trained on them.
    """
    run.span(1, "rl.step.process", 0, 2 * SECOND)
    run.span(2, "rl.step.process", 0, 2 * SECOND, role="rollouter")
    run.span(3, "rollout.generate", -900 * MS, 100 * MS, step=4, role="rollouter", trace_id=request(3, step=4))
    run.span(4, "rollout.generate", 50 * MS, 300 * MS, role="rollouter", trace_id=request(4, step=5))
    run.span(5, "rollout.generate", 60 * MS, 400 * MS, role="rollouter", trace_id=request(5, step=5))
    run.span(
        6,
        "train.update_actor",
        500 * MS,
        900 * MS,
        parent=1,
        links=((request(3, step=4), f"{3:016x}"), (request(4, step=5), f"{4:016x}")),
        mini_batch=0,
    )


def test_a_step_is_one_timeline_on_one_clock(run: Run) -> None:
    """
    A group for each process, spans on top, its recording below; every time is the span's or the recording's own.
    """
    step(run)
    run.window(recording=trace(20))
    run.window(role="rollouter", recording=trace(3))
    merged, timeline = run.merge()
    (update,) = timeline.of("trainer 0 (pid 7)", "spans", category="span")[1:]
    operators = timeline.of("trainer 0", f"thread {PID}", category="cpu_op")
    (mark,) = timeline.of("trainer 0", category="user_annotation")

    assert ["trainer 0 (pid 7)", "rollouter 0 (pid 7)"] == list(timeline.processes.values())
    assert (6, 2, 2, []) == (merged.spans, merged.processes, len(merged.recordings), merged.missing)
    assert ("train.update_actor", OPENED + 500 * MS, OPENED + 900 * MS) == (
        update.name,
        timeline.unix_ns(update.start),
        timeline.unix_ns(update.end),
    )
    assert (20, "aten::op0", OPENED + 1 * MS + 10_000) == (
        len(operators),
        operators[0].name,
        timeline.unix_ns(operators[0].start),
    )
    assert f"train.update_actor #{SPAN}" == mark.name
    assert OPENED - 900 * MS == timeline.base_ns
    assert ("5", "4") == (timeline.keys["stepscope.step"], timeline.keys["stepscope.param_version"])


def test_spans_lie_in_their_parents_and_never_across(run: Run) -> None:
    """
    A child is on its parent's lane; requests that run at once, or are nobody's child, have lanes of their own.
    """
    step(run)
    _, timeline = run.merge()
    rows = {one.name: timeline.threads[one.row] for one in timeline.of("trainer 0")}
    requests = [timeline.threads[one.row] for one in timeline.of("rollouter 0") if one.name == "rollout.generate"]

    assert rows["rl.step.process"] == rows["train.update_actor"] == "spans"
    assert ["spans", "spans 3", "spans 4"] == sorted(requests)


def test_arrows_lead_from_requests_to_the_training_on_them(run: Run) -> None:
    """
    By the links of the mini-batch, from requests of earlier steps too; else by the sample table.
    """
    step(run)
    merged, timeline = run.merge()
    found = [(name, one.args["span_id"], other.args["span_id"]) for name, one, other in timeline.flows]

    assert [("samples", f"{3:016x}", f"{6:016x}"), ("samples", f"{4:016x}", f"{6:016x}")] == found
    assert 2 == merged.samples


def test_the_sample_table_leads_where_spans_have_no_links(run: Run) -> None:
    """
    To the update of that mini-batch; a sample that names nothing leads nowhere.
    """
    run.span(4, "rollout.generate", 50 * MS, 300 * MS, role="rollouter", trace_id=request(4, step=5))
    run.span(6, "train.update_actor", 500 * MS, 900 * MS, mini_batch=1)
    rows = [(5, 1, 4, "a", request(4, step=5), f"{4:016x}"), (5, 1, 4, "b", "", "")]
    insert = (
        "INSERT INTO samples (step, mini_batch, param_version, sample_id, trace_id, span_id) VALUES (?, ?, ?, ?, ?, ?)"
    )
    run.store.submit(lambda connection: connection.executemany(insert, rows)).result(30)
    _, timeline = run.merge()

    assert [("rollout.generate", "train.update_actor")] == [(one.name, two.name) for _, one, two in timeline.flows]


def test_training_that_begins_before_the_request_ends_keeps_its_arrow(run: Run) -> None:
    """
    The arrow stays inside both slices, and where one is over before the other begins it points back.
    """
    for number, (start, end) in enumerate([(0, 900), (600, 800), (950, 990)], 10):
        run.span(number, "rollout.generate", start * MS, end * MS, role="rollouter", trace_id=request(number, step=5))
    links = tuple((request(number, step=5), f"{number:016x}") for number in (10, 11, 12))
    run.span(6, "train.update_actor", 500 * MS, 700 * MS, links=links)
    _, timeline = run.merge()

    assert 3 == len(timeline.flows)
    assert {"train.update_actor"} == {target.name for _, _, target in timeline.flows}


def test_what_is_missing_is_named_in_the_file_and_told(run: Run) -> None:
    """
    A window that was lost, one whose recording is gone, one that lies elsewhere, one never asked for, a broken one.
    """
    run.span(1, "rl.step.process", 0, 2 * SECOND, role="critic")
    run.window(rank=0, state="lost", reason="node_vanished")
    run.window(rank=1, artifact=f"{RUN}/step-000005/gone.json.gz")
    run.window(rank=2, node="far", artifact="far/trace.json.gz")
    run.window(rank=3, recording=trace(20)[:3000])
    run.window(rank=4, recording=b"")
    run.window(rank=5, recording=trace(2), complete=False, incomplete_reason="opened_late")
    merged, timeline = run.merge()
    found = {(one.process, one.absent): one.why for one in merged.missing}
    drawn = {(timeline.processes[one.row[0]], one.args["reason"]) for one in timeline.of("", "missing")}

    assert "the window is lost: node_vanished" == found["trainer 0 (pid 7)", True]
    assert "it was moved or removed" in found["trainer 1 (pid 7)", True]
    assert "lies on node far, and could not be fetched: node far was not asked" in found["trainer 2 (pid 7)", True]
    assert found["trainer 3 (pid 7)", False].startswith("truncated: ")
    assert "empty: the file is empty" == found["trainer 4 (pid 7)", True]
    assert "incomplete: opened_late" == found["trainer 5 (pid 7)", False]
    assert "no window was asked for" == found["critic 0", True]
    assert {(one.process, one.why) for one in merged.missing} == drawn
    assert str(run.directory) not in (run.directory / "out.json").read_text()
    assert 5 <= len(timeline.of("trainer 3", category="cpu_op")) < 20


def test_other_nodes_clocks_are_set_by_what_their_reports_measured(run: Run) -> None:
    """
    Their spans and recordings are shifted by the offset; how far a clock is ahead is told as on the page, and one that
    is not known is called so.
    """
    run.node("n1", offset_ns=-3 * MS, error_ns=20_000)
    run.node("n2", offset_ns=None)
    own: dict[str, str | int] = {"host.name": "n1", "process.pid": 7}
    run.span(1, "rl.step.process", 10 * MS, 20 * MS, resource=own)
    run.window(rank=0, node="n1", recording=trace(1))
    run.window(rank=1, node="n2", recording=trace(1))
    _, timeline = run.merge()
    (span,) = timeline.of("trainer 0", "spans")
    shifted, plain = timeline.of("", category="cpu_op")

    assert [
        "trainer 0 (pid 7) on n1, its clock +3.00 ms ± 20.00 us",
        "trainer 1 (pid 7) on n2, whose clock was never compared",
    ] == list(timeline.processes.values())
    assert OPENED + 7 * MS == timeline.unix_ns(span.start)
    assert 3 * MS == timeline.unix_ns(plain.start) - timeline.unix_ns(shifted.start)


def test_a_recording_without_a_clock_lies_where_its_spans_do(run: Run) -> None:
    """
    Else where its window opened, and so does one whose clock is somebody else's; both are said.
    """
    relative = trace(2).replace(str(BASE).encode(), b"0")
    run.span(int(SPAN, 16), "train.update_actor", 5 * MS, 9 * MS, resource={"host.name": "n", "process.pid": 7})
    run.window(rank=0, recording=relative)
    run.window(rank=1, recording=relative.replace(SPAN.encode(), b"f" * 16))
    run.window(rank=2, recording=trace(2).replace(str(BASE).encode(), str(BASE - 10**15).encode()))
    merged, timeline = run.merge()
    marks = [timeline.unix_ns(one.start) for one in timeline.of("", category="user_annotation")]
    reasons = [one.why for one in merged.missing if not one.why.startswith("no_epoch")]

    assert OPENED + 5 * MS == marks[0]
    assert OPENED == marks[1] == timeline.unix_ns(timeline.of("trainer 1", category="user_annotation")[0].start)
    assert reasons[0].endswith("it lies where the spans on it do")
    assert reasons[1].endswith("it begins where its window does")
    assert reasons[2].startswith("its times are not those of its window; it lies where the spans on it do")


def test_of_a_window_that_steps_share_the_step_is_cut_out(run: Run) -> None:
    """
    By the span of the process; a window of one step is drawn whole.
    """
    own: dict[str, str | int] = {"host.name": "n", "process.pid": 7}
    run.span(1, "rl.step.process", MS + 35_000, MS + 64_000, step=6, resource=own)
    run.window(5, recording=trace(20), other={"last_step": 6})
    merged, timeline = run.merge(6)

    assert ["aten::op2", "aten::op3", "aten::op4", "aten::op5"] == [
        one.name for one in timeline.of("trainer 0", category="cpu_op")
    ]
    assert "cut from steps 5-6" in merged.recordings[0]


KERNEL = EVENT.replace('"External id"', '"correlation": 9, "grid": [1, 2, 3], "note": "secret", "External id"')


def test_kernels_are_tied_to_their_launch_and_tell_what_may_be_told(run: Run) -> None:
    """
    Numbers and shapes go along; whatever else stands in the file, around the events or in them, does not.
    """
    launch = KERNEL % ("cuda_runtime", "cudaLaunchKernel", PID, PID, "5107424940000.000", "3.000", 1, 1)
    kernel = KERNEL % ("kernel", "gemm", 0, 7, "5107424940010.125", "30.001", 1, 1)
    stack = EVENT % ("python_function", "/home/ann/job/train.py(3): step", PID, PID, "5107424950000.000", "1.5", 2, 2)
    own = EVENT % ("user_annotation", "read /home/ann/data", PID, PID, "5107424960000.000", "1.5", 2, 2)
    planted = trace(2, extra=(launch, kernel, stack, own)).replace(
        b'"stepscope.step"', b'"environment": {"KEY": "sk-1"}, "stepscope.step"'
    )
    run.window(recording=planted)
    merged, timeline = run.merge()
    (found,) = timeline.of("trainer 0", "device 0 stream 7")
    text = (run.directory / "out.json").read_text()

    assert [("launch", "cudaLaunchKernel", "gemm")] == [(name, one.name, two.name) for name, one, two in timeline.flows]
    assert (OPENED + 5_010_125, 30_001) == (timeline.unix_ns(found.start), int((found.end - found.start) * 1000))
    assert (9, [1, 2, 3]) == (found.args["correlation"], found.args["grid"])
    assert 1 == merged.launches
    assert not [secret for secret in ("secret", "sk-1", "/home/ann") if secret in text]
    assert {"train.py(3): step", "read ~/data"} <= {one.name for one in timeline.slices}


def test_slices_that_cross_get_a_lane_of_their_own(run: Run) -> None:
    """
    As a stream's annotation, which Kineto begins a nanosecond early, across the end of the one before.
    """
    crossing = [
        EVENT % ("cpu_op", f"op{number}", PID, 9, f"{5107424936000 + start}.000", f"{length}.000", number, number)
        for number, (start, length) in enumerate([(0, 10), (2, 3), (8, 7), (9, 1), (15, 0), (15, 4)])
    ]
    run.window(recording=trace(0, extra=tuple(crossing)))
    _, timeline = run.merge()
    lanes = {one.name: timeline.threads[one.row] for one in timeline.of("trainer 0", "thread 9")}

    assert {"op2": f"thread 9 of pid {PID} (2)"} == {name: lane for name, lane in lanes.items() if "(" in lane}
    assert {f"op{number}" for number in range(6)} == lanes.keys()


def test_an_engines_workers_are_told_apart(run: Run) -> None:
    """
    Its recording is a folder of several, all of one window.
    """
    folder = run.directory / "traces"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(trace(2)))
    run.window(recording=folder, tool="vllm")
    merged, timeline = run.merge()
    threads = {timeline.threads[one.row] for one in timeline.of("trainer 0", category="cpu_op")}

    assert {f"recording {number}: thread {PID} of pid {PID}" for number in (1, 2)} == threads
    assert 2 == len(merged.recordings)


def test_the_file_is_whole_or_not_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Compressed where its name says so, the same bytes each time; an error names the file and what would help.
    """
    step(run)
    run.window(recording=trace(3))
    run.merge(name="one.json.gz")
    run.merge(name="two.json.gz")
    store = run.directory / RUN / "stepscope.db"
    before = sorted(path.name for path in run.directory.iterdir())

    assert (run.directory / "one.json.gz").read_bytes() == (run.directory / "two.json.gz").read_bytes()
    with pytest.raises(MergeError, match=r"no step 9 in this run: it has steps 4 to 5; name one with --step"):
        merge(store, 9, run.directory / "nine.json")
    with pytest.raises(MergeError, match=r"no step 9{30} in this run: it has steps 4 to 5"):
        merge(store, int("9" * 30), run.directory / "nine.json")
    with pytest.raises(MergeError, match=r"cannot write .*nowhere/x.json: No such file.*; name another file with -o"):
        merge(store, 5, run.directory / "nowhere" / "x.json")
    monkeypatch.setattr("stepscope_sidecar.timeline.recording.draw", removed)
    with pytest.raises(MergeError, match=r"gone\.json\.gz was removed while it was read"):
        merge(store, 5, run.directory / "three.json")
    monkeypatch.setattr("stepscope_sidecar.timeline.recording.draw", lambda *_, **__: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        merge(store, 5, run.directory / "three.json")
    assert before == sorted(path.name for path in run.directory.iterdir())


@pytest.mark.parametrize(("count", "said"), [(1, "1 process,"), (2, "2 processes,")])
def test_one_process_is_told_as_one(tmp_path: Path, count: int, said: str) -> None:
    """
    A run of a single process is no "1 processes".
    """
    path = tmp_path / "x.json"
    path.write_text("{}")
    made = Merged(path=path, step=5, processes=count, spans=3, samples=0, launches=0, recordings=[], missing=[])

    assert f"spans       3 of {said} 0 arrows to training" in list(told.lines(made))


def test_the_command_says_what_went_in_and_what_did_not(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    By default the file is in the current folder; what is missing goes to standard error, and so does an unknown step.
    """
    step(run)
    run.window(recording=trace(3))
    run.window(rank=1, state="denied", reason="rank_not_selected")
    run.window(rank=2, state="denied", reason="rank_not_selected")
    monkeypatch.setenv("STEPSCOPE_DIR", str(run.directory))
    monkeypatch.chdir(run.directory)
    printed = []
    for number in ("5", "9"):
        monkeypatch.setattr("sys.argv", ["stepscope", "merge", "--step", number, "--run", RUN])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed.append((ended.value.code, *capsys.readouterr()))
    (code, out, errors), (unknown, nothing, error) = printed
    events = json.loads(gzip.decompress((run.directory / f"{RUN}-step-000005.json.gz").read_bytes()))["traceEvents"]

    assert (0, 2, "") == (code, unknown, nothing)
    assert out.startswith(f"step 5 (weights v4 in force, makes v5): {RUN}-step-000005.json.gz (")
    assert "recording   trainer 0 (pid 7): 4 events, torch at level ops" in out
    assert [
        "not in it: trainer 1 (pid 7), trainer 2 (pid 7): the window is denied: rank_not_selected",
        "not in it: rollouter 0: no window was asked for",
    ] == errors.splitlines()
    assert error.startswith("stepscope: no step 9 in this run")
    assert events
