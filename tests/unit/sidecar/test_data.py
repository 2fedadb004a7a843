"""
A run as tables: what is in its store and its recordings, typed, whole, and the same in Parquet.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepscope import ids
from stepscope_sidecar import data, render
from stepscope_sidecar.data import columns, kernels
from stepscope_sidecar.errors import DataError
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import SampleRow, SpanRow, Value, WindowRow, upsert, values
from stepscope_sidecar.store import Store, add_samples
from tests.unit.sidecar.bodies import ATTEMPT, BEGAN, body, foreign, span
from tests.unit.sidecar.recorded import facts, ns, present
from tests.unit.sidecar.stored import WAIT, put, window
from tests.unit.sidecar.traces import DATA

FOLDER = f"demo-{ATTEMPT}"

RECORDING = "kineto/tracelens/h100_bert_small_torch2.6.json.gz"


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """
    An attempt's folder: spans with a link, samples, a window without a recording and one whose recording is no trace.
    """
    folder = tmp_path / FOLDER
    broken = folder / "step-000002" / "trainer-0-7" / "torch" / "recording.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("no trace at all")
    store = Store.open(folder / "stepscope.db", run="demo", attempt=ATTEMPT)
    try:
        linked = span(1, step=2, name="rollout.generate", links=(("ab" * 16, "cd" * 8),))
        store.append(body(linked, foreign(2, step=2), span(3, step=2, bucket="idle")), 3)
        store.append(body(linked), 1)
        put(
            store,
            window(1, "denied", run="demo", attempt=ATTEMPT, reason="rank_not_selected"),
            window(
                2,
                run="demo",
                attempt=ATTEMPT,
                complete=False,
                incomplete_reason="truncated",
                artifact=f"{FOLDER}/step-000002/trainer-0-7/torch/recording.json",
                bytes=15,
                stall_seconds={"start": 0.25},
                other={"last_step": 3},
            ),
        )
        samples = [
            SampleRow(step=2, mini_batch=0, param_version=1, sample_id="a", oldest_version=0, trace_id="ab" * 16),
            SampleRow(step=2, mini_batch=0, param_version=1, sample_id="b"),
        ]
        store.submit(partial(add_samples, samples=samples)).result(WAIT)
    finally:
        store.close()
    return folder


def test_spans_are_rows_with_what_is_asked_for_most_in_columns(attempt: Path) -> None:
    """
    Once each, in the order they came; ids, times, roles and steps as in the store, the rest as JSON.
    """
    with data.open(attempt) as run:
        rows = run.spans.to_pylist()

    assert ("demo", ATTEMPT) == (run.name, run.attempt)
    assert columns.SPANS == run.spans.schema
    assert ["rollout.generate", "llm_request", "train.update_actor"] == [row["name"] for row in rows]
    first, other, last = rows
    assert (2, 1, "trainer", 0) == (first["step"], first["param_version"], first["role"], first["rank"])
    assert (BEGAN + 1, 500_000_000) == (first["start_unix_ns"], first["duration_ns"])
    assert [{"trace_id": "ab" * 16, "span_id": "cd" * 8}] == first["links"]
    assert ("productive", "idle", None) == (first["bucket"], last["bucket"], other["bucket"])
    assert (None, 2) == (other["parent_span_id"], other["step"])
    assert {"rl.step": 2, "param_version": 1} == json.loads(other["attributes"])
    assert "tests" == first["service"] == json.loads(first["resource"])["service.name"]


def test_windows_and_samples_are_rows_too(attempt: Path) -> None:
    """
    Paths are below STEPSCOPE_DIR, what is not known is null, staleness is in versions.
    """
    with data.open(attempt) as run:
        denied, ready = run.windows.to_pylist()
        known, unknown = run.samples.to_pylist()

    assert (columns.WINDOWS, columns.SAMPLES) == (run.windows.schema, run.samples.schema)
    assert ("denied", "rank_not_selected", None, None) == (
        denied["state"],
        denied["reason"],
        denied["artifact"],
        denied["complete"],
    )
    assert (2, 3, False, "truncated") == (
        ready["step"],
        ready["last_step"],
        ready["complete"],
        ready["incomplete_reason"],
    )
    assert f"{FOLDER}/step-000002/trainer-0-7/torch/recording.json" == ready["artifact"]
    assert (0.25, None) == (ready["stall_start"], ready["stall_open"])
    assert (1, "ab" * 16) == (known["staleness"], known["trace_id"])
    assert (None, None, None) == (unknown["staleness"], unknown["oldest_version"], unknown["trace_id"])
    assert f"{ids.trace_id(ATTEMPT, 2):032x}" == known["trained_trace_id"]


def test_a_recording_that_is_no_trace_has_no_kernels(attempt: Path) -> None:
    """
    No exception, and a table of its columns.
    """
    with data.open(attempt) as run:
        assert (0, kernels.KERNELS) == (run.kernels.num_rows, run.kernels.schema)


def test_windows_stand_as_every_other_reader_says(attempt: Path) -> None:
    """
    One that a killed sidecar left recording is aborted, as `stepscope windows` prints it.
    """
    store = Store.open(attempt / "stepscope.db", run="demo", attempt=ATTEMPT)
    try:
        lost = {"node": ids.node(), "pid": 2**22 + 1, "process_start": 5}
        put(store, window(7, "recording", run="demo", attempt=ATTEMPT, **lost))
    finally:
        store.close()
    with data.open(attempt) as run:
        rows = run.windows.to_pylist()
    printed = {row["window"]: (row["state"], row["reason"]) for row in render.window_objects(attempt)}

    assert ("aborted", "sidecar_lost") == printed["w-7-recording"]
    assert printed == {row["window"]: (row["state"], row["reason"] or "") for row in rows}


def test_a_recording_of_another_node_is_read_where_it_is_on_this_machine(attempt: Path) -> None:
    """
    Nodes may share a folder, or somebody has copied it; one that lies there alone has no kernels here.
    """
    (attempt / "step-000006").mkdir()
    event = {"ph": "X", "name": "gemm", "cat": "kernel", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 7}
    (attempt / "step-000006" / "a.json").write_text(json.dumps({"traceEvents": [event]}))
    store = Store.open(attempt / "stepscope.db", run="demo", attempt=ATTEMPT)
    try:
        for name in ("a", "b"):
            artifact = f"{FOLDER}/step-000006/{name}.json"
            row = window(6, window=f"w-{name}", run="demo", attempt=ATTEMPT, node="other", artifact=artifact)
            store.submit(partial(_elsewhere, row=row)).result(WAIT)
    finally:
        store.close()
    with data.open(attempt) as run:
        rows = run.kernels.to_pylist()

    assert [("w-a", "gemm", 2000)] == [(row["window"], row["name"], row["duration_ns"]) for row in rows]


def _elsewhere(connection: sqlite3.Connection, *, row: WindowRow) -> None:
    connection.execute(upsert(row, "node_windows"), values(row))


@present
def test_kernels_are_those_of_the_recordings(attempt: Path) -> None:
    """
    Count, sum and the first start are what an independent script found, with step, role and rank of their window.
    """
    artifact = f"{FOLDER}/step-000004/recording.json.gz"
    (attempt.parent / artifact).parent.mkdir()
    shutil.copy(DATA / RECORDING, attempt.parent / artifact)
    store = Store.open(attempt / "stepscope.db", run="demo", attempt=ATTEMPT)
    try:
        put(store, window(4, run="demo", attempt=ATTEMPT, role="rollouter", rank=1, artifact=artifact))
    finally:
        store.close()
    fact = facts()[RECORDING]["kernels"]
    with data.open(attempt) as run:
        rows = [row for row in run.kernels.to_pylist() if row["kind"] == "kernel"]

    assert (fact["count"], ns(fact["sum_us"])) == (len(rows), sum(row["duration_ns"] for row in rows))
    assert fact["distinct_names"] == len({row["name"] for row in rows})
    assert {(4, "rollouter", 1, "w-4-ready")} == {
        (row["step"], row["role"], row["rank"], row["window"]) for row in rows
    }
    base = facts()[RECORDING]["baseTimeNanoseconds"]
    assert ns(fact["first_ts"]) + base == min(row["start_unix_ns"] for row in rows)
    assert all(row["start_unix_ns"] == row["start_ns"] for row in rows)


def test_a_kernel_knows_the_span_that_asked_for_it(attempt: Path) -> None:
    """
    By the call that launched it; one that was launched outside all spans belongs to none.
    """
    artifact = f"{FOLDER}/step-000002/trainer-0-7/torch/launched.json"
    asked = span(1, step=2)
    mark = f"train.update_actor #{asked.span_id}"

    def event(name: str, kind: str, start: int, length: int, **args: object) -> dict[str, object]:
        on_device = {"pid": 0, "tid": 7} if kind == "kernel" else {"pid": 7, "tid": 7}
        return {"ph": "X", "name": name, "cat": kind, "ts": start, "dur": length, "args": args, **on_device}

    recorded = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": BEGAN,
        "traceEvents": [
            event(mark, "user_annotation", 10, 50),
            event("cudaLaunchKernel", "cuda_runtime", 20, 2, correlation=1),
            event("cudaLaunchKernel", "cuda_runtime", 80, 2, correlation=2),
            event("gemm", "kernel", 100, 30, correlation=1, device=0, stream=7),
            event("copy_", "kernel", 140, 5, correlation=2, device=0, stream=7),
        ],
    }
    (attempt.parent / artifact).write_text(json.dumps(recorded))
    store = Store.open(attempt / "stepscope.db", run="demo", attempt=ATTEMPT)
    try:
        put(store, window(2, run="demo", attempt=ATTEMPT, artifact=artifact))
    finally:
        store.close()
    with data.open(attempt) as run:
        rows = run.kernels.to_pylist()

    assert [("gemm", asked.span_id, "train.update_actor"), ("copy_", None, None)] == [
        (row["name"], row["span_id"], row["span_name"]) for row in rows
    ]
    assert [(BEGAN + 100_000, 30_000, 0, 7, 1)] == [
        (row["start_unix_ns"], row["duration_ns"], row["device"], row["stream"], row["correlation"]) for row in rows[:1]
    ]


def test_parquet_holds_the_same(attempt: Path, tmp_path: Path) -> None:
    """
    A file for each table, or for those that are asked for; written over, and nothing else left in the folder.
    """
    target = tmp_path / "out" / "deep"
    with data.open(attempt) as run:
        counts = run.to_parquet(target)
        again = run.to_parquet(target, tables=["windows"])
        tables = {name: getattr(run, name) for name in counts}

    assert {"spans": 3, "windows": 2, "samples": 2, "kernels": 0} == counts
    assert {"windows": 2} == again
    assert sorted(f"{name}.parquet" for name in counts) == sorted(path.name for path in target.iterdir())
    for name, table in tables.items():
        assert table.equals(pq.read_table(target / f"{name}.parquet"))


@pytest.mark.parametrize("place", ["attempt", "store", "directory"])
def test_a_run_can_be_named_in_three_ways(attempt: Path, place: str) -> None:
    """
    By its folder, its store, or STEPSCOPE_DIR for the newest.
    """
    (attempt.parent / "latest").symlink_to(attempt.name)
    path = {"attempt": attempt, "store": attempt / "stepscope.db", "directory": attempt.parent}[place]
    with data.open(str(path)) as run:
        assert 3 == run.spans.num_rows


def test_where_there_is_no_run_it_is_said(tmp_path: Path) -> None:
    """
    No folder, a file that is no store, and a folder that cannot be written.
    """
    (tmp_path / "text").write_text("no store")
    Store.open(tmp_path / "s.db", attempt=ATTEMPT).close()

    with pytest.raises(DataError, match="no run at"):
        data.open(tmp_path / "nothing")
    with pytest.raises(DataError, match="cannot read the store"):
        data.open(tmp_path / "text")
    with data.open(tmp_path / "s.db") as run:
        assert (0, columns.SPANS) == (run.spans.num_rows, run.spans.schema)
        with pytest.raises(DataError, match="cannot write"):
            run.to_parquet(tmp_path / "text" / "below")
        with pytest.raises(DataError, match="no table 'steps'"):
            run.to_parquet(tmp_path / "out", tables=["steps"])


def test_what_is_still_in_the_inbox_is_there(tmp_path: Path) -> None:
    """
    A killed sidecar leaves spans that nobody has read into rows: they come last, once.
    """
    path = tmp_path / "s.db"
    store = Store.open(path, attempt=ATTEMPT)
    store.append(body(span(1)), 1).result(WAIT)
    store.close()
    store = Store.open(path, attempt=ATTEMPT)
    try:
        # Before the indexer gets a turn: an append in the same transaction as the look.
        store.submit(
            lambda connection: connection.execute(
                "INSERT INTO inbox (received_unix_ns, spans, body) VALUES (1, 3, ?)", (body(span(2), span(1), span(2)),)
            )
        ).result(WAIT)
        with open_reader(path) as reader:
            found = [row.span_id for piece in reader.span_pieces(1) for row in piece]
    finally:
        store.close()

    assert [span(1).span_id, span(2).span_id] == found


def test_pyarrow_is_needed_for_tables_alone(attempt: Path) -> None:
    """
    Without it the sidecar's package imports, and ``data.open`` says what to install.
    """
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from stepscope_sidecar import api, cli, data\n"
        "from stepscope_sidecar.errors import DataError\n"
        "try:\n    data.open(sys.argv[1])\nexcept DataError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(attempt)], capture_output=True, text=True, check=True)

    assert "tables need pyarrow: pip install '/path/to/stepscope[data]'\n" == done.stdout


def test_types_do_not_depend_on_what_is_there() -> None:
    """
    An attribute of another type than its column's is null, not an error, and numbers keep theirs.
    """
    row = span(1)
    odd: dict[str, Value] = {
        "rl.tokens": "many",
        "rl.reward": 1,
        "rl.samples": True,
        "rl.mini_batch": 3,
        "rl.bucket": 4,
    }
    with_odd = columns.span_cells(
        SpanRow(
            trace_id=row.trace_id,
            span_id=row.span_id,
            parent_span_id="",
            name="x",
            start_unix_ns=5,
            end_unix_ns=1,
            attributes=odd,
            rank=2**40,
        ),
        {"run": "demo", "attempt": ATTEMPT},
    )
    found = columns.batch([with_odd], columns.SPANS).to_pylist()[0]

    assert (None, 1.0, None, 3, None) == tuple(
        found[name] for name in ("tokens", "reward", "samples", "mini_batch", "bucket")
    )
    assert (0, None, odd) == (found["duration_ns"], found["rank"], json.loads(found["attributes"]))
    assert isinstance(columns.SPANS, pa.Schema)
