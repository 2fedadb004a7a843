"""
Recordings of Ascend's profilers, read, against what an independent script found in them.
"""

import shutil
import sqlite3
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope_sidecar import traces
from stepscope_sidecar.artifacts import link
from stepscope_sidecar.traces import NONE, Clock, Fault, Kind, Trace, intervals
from tests.unit.sidecar.recorded import facts, ns, present, top
from tests.unit.sidecar.traces import DATA

OUT = "ASCEND_PROFILER_OUTPUT"
TEXT = ("text_level0/rank0_ascend_pt", "text_level1/rank0_ascend_pt", "text_level1/rank1_ascend_pt")
DATABASES = ("db_level0/rank0_ascend_pt", "db_level1/rank0_ascend_pt", "db_level1/rank1_ascend_pt")
ST = "st_level2_4rank_torch_npu2.7.1_cann8.3"


def _known(suffix: str) -> list[str]:
    found = facts() if DATA.is_dir() else {}
    return sorted(name for name in found if name.startswith("ascend/") and name.endswith(suffix))


def _near(told: object, found: int, count: int) -> bool:
    """
    Whether a sum of microseconds is that of ``count`` lengths that were each rounded to a nanosecond.
    """
    return abs(Decimal(str(told)) * 1000 - found) <= Decimal(count) / 2


@present
@pytest.mark.parametrize("name", _known("trace_view.json"))
def test_a_timeline_is_read_as_the_facts_say(name: str) -> None:
    """
    Tasks on the hardware (count, sum, busy time, first and last), steps and the first event's epoch; CANN writes
    lengths of sixteenths of a nanosecond, so that sums are within the rounding of each.
    """
    fact, trace = facts()[name], traces.open(DATA / name)
    told = fact["ascend"]["hardware_tasks"]
    rows = np.flatnonzero(trace.stream != NONE)

    assert ("torch_npu", Clock.EPOCH) == (trace.header.format, trace.header.clock)
    assert told["count"] == len(rows)
    assert _near(told["sum_us"], int(trace.duration_ns[rows].sum()), told["count"])
    assert _near(told["busy_us"], intervals.busy_ns(trace, rows), told["count"])
    if told["count"]:
        assert fact["first_epoch_ns"] == int(trace.start_ns.min())
        assert ns(told["first_ts"]) == int(trace.start_ns[rows].min())
        assert [list(one[:2]) for one in told["top5_by_total_us"]] == [one[:2] for one in top(trace, rows)]
    steps = [(step, ns(ts), ns(us)) for step, ts, us, _ in fact.get("profiler_steps", [])]
    marks = trace.rows(Kind.ANNOTATION)
    assert steps == [(trace.name_of(row), int(trace.start_ns[row]), int(trace.duration_ns[row])) for row in marks]


@present
@pytest.mark.parametrize("name", [*_known("kernel_details.csv"), *_known("kernel_details_small.csv")])
def test_a_table_is_read_as_the_facts_say(name: str) -> None:
    """
    Rows (count, sum, top five, first and last start), and collectives apart from computations.
    """
    fact, trace = facts()[name], traces.open(DATA / name)
    apart = [told for core, told in fact["by_Accelerator_Core"].items() if core in {"HCCL", "COMMUNICATION"}]
    rows = trace.rows(Kind.COMMUNICATION)

    assert fact["rows"] == len(trace)
    assert _near(fact["sum_us"], int(trace.duration_ns.sum()), len(trace))
    assert [one[:2] for one in fact["top5"]] == [one[:2] for one in top(trace, np.arange(len(trace)))]
    assert (ns(fact["first_start"]), ns(fact["last_start"])) == (int(trace.start_ns.min()), int(trace.start_ns.max()))
    assert sum(count for count, _ in apart) == len(rows)
    assert _near(sum(Decimal(str(us)) for _, us in apart), int(trace.duration_ns[rows].sum()), len(rows))


@present
@pytest.mark.parametrize("name", [name for name in _known(".db") if "analysis" not in name])
def test_a_database_is_read_to_the_nanosecond(name: str) -> None:
    """
    Tasks, computations (count, sum, top five), collectives, session, step and rank are those of the facts, exactly.
    """
    fact, trace = facts()[name], traces.open(DATA / name)
    tasks = np.flatnonzero(trace.on_device & (trace.kind != Kind.COMMUNICATION))
    rows = trace.rows(Kind.KERNEL)
    told, kernels = fact["tasks"], fact["compute_tasks"]

    assert not trace.header.flags
    assert (told["count"], told["sum_ns"]) == (len(tasks), int(trace.duration_ns[tasks].sum()))
    assert told["first_start_ns"] == int(trace.start_ns[tasks].min())
    assert told["last_end_ns"] == int(trace.end_ns[tasks].max())
    assert (kernels["count"], kernels["sum_ns"]) == (len(rows), int(trace.duration_ns[rows].sum()))
    assert kernels["top5"] == top(trace, rows)
    collectives = trace.rows(Kind.COMMUNICATION)
    assert fact["communication_op"] == [len(collectives), int(trace.duration_ns[collectives].sum()) or None]
    assert tuple(fact["SESSION_TIME_INFO"][0][:2]) == trace.header.session_ns
    steps = [[f"ProfilerStep#{step}", begin, end] for step, begin, end in fact.get("STEP_TIME", [])]
    marks = np.flatnonzero(trace.named(lambda name: name.startswith("ProfilerStep")))
    assert steps == [[trace.name_of(int(row)), int(trace.start_ns[row]), int(trace.end_ns[row])] for row in marks]
    assert fact.get("RANK_DEVICE_MAP", [[None]])[0][0] == trace.header.rank


@present
@pytest.mark.parametrize("name", [*TEXT, *DATABASES])
def test_what_runs_on_the_device_is_tied_to_the_operators_that_asked_for_it(name: str) -> None:
    """
    Each computation and each collective has a moment at which an operator of the host asked for it, not after it ran.
    """
    trace = traces.open(DATA / "ascend" / name)
    asked = dict(zip(trace.points.correlation.tolist(), trace.points.at_ns.tolist(), strict=True))
    rows = trace.rows(Kind.KERNEL, Kind.COMMUNICATION)
    starts = [(asked.get(int(trace.correlation[row])), int(trace.start_ns[row])) for row in rows]

    assert [] == [one for one in starts if one[0] is None or one[0] > one[1]]
    assert not trace.tracks.on_device[trace.points.track].any()


@present
@pytest.mark.parametrize("name", TEXT)
def test_a_folder_gives_its_timeline_with_rank_and_session(name: str) -> None:
    """
    Rank and session are those of ``profiler_info``, and computations are as long as the table of them says.
    """
    trace = traces.open(DATA / "ascend" / name)
    [info] = [fact for path, fact in facts().items() if path.startswith(f"ascend/{name}/profiler_info")]
    by_core = facts()[f"ascend/{name}/{OUT}/kernel_details.csv"]["by_Accelerator_Core"]
    rows = trace.rows(Kind.KERNEL)

    assert (info["rank_id"], "profiler_info") == (trace.header.rank, trace.header.rank_from)
    assert (info["start_epoch_ns"], info["end_info"]["collectionTimeEnd"]) == trace.header.session_ns
    if "HCCL" in by_core:
        table = sum(Decimal(str(us)) for core, (_, us) in by_core.items() if core != "HCCL")
        assert _near(table, int(trace.duration_ns[rows].sum()), len(rows) * 2)


@present
def test_a_folder_without_a_timeline_gives_its_table_and_one_of_sums_says_so() -> None:
    """
    Of the four ranks of a recent release one has a table of kernels; another has sums only.
    """
    first, second = (traces.open(DATA / "ascend" / ST / f"rank_{rank}_ascend_pt") for rank in (0, 1))

    assert (2463, 0, "torch_npu 2.7.1, CANN 8.3.RC1") == (len(first), first.header.rank, first.header.era)
    assert (231290100, 420174260) == tuple(
        int(first.duration_ns[first.rows(kind)].sum()) for kind in (Kind.KERNEL, Kind.COMMUNICATION)
    )
    assert (0, [Fault.INVALID]) == (len(second), [flag.fault for flag in second.header.flags])
    assert "sums only" in second.header.flags[0].reason


@present
def test_all_ranks_of_a_folder_are_opened_each_for_itself(tmp_path: Path) -> None:
    """
    A folder of several recordings is not one recording, and says so.
    """
    for name in TEXT[1:]:
        shutil.copytree(DATA / "ascend" / name, tmp_path / Path(name).name)

    assert [0, 1] == [trace.header.rank for trace in traces.open_all(tmp_path)]
    assert "2 recordings" in traces.open(tmp_path).header.flags[0].reason


@present
def test_what_stands_beside_a_recording_belongs_to_it(tmp_path: Path) -> None:
    """
    The window's name and the spans that the profiler did not draw are in files that finalising has put there.
    """
    folder = tmp_path / "rank0_ascend_pt"
    shutil.copytree(DATA / "ascend" / TEXT[0], folder)
    before = traces.open(folder)
    link.write(folder, {"stepscope.window": "w1", "stepscope.rank": "0", "SECRET": "hunter2"})
    span = (
        b'{"ph":"X","cat":"user_annotation","name":"s #00000000000000aa","pid":7,"tid":8,"ts":%s,"dur":0.001,"args":{}}'
    )
    link.write_spans(folder, [span % b"1736405443863674.401"])

    trace = traces.open(folder)
    row = len(before)

    assert {"stepscope.window": "w1", "stepscope.rank": "0"} == trace.header.metadata
    assert (row + 1, "s #00000000000000aa") == (len(trace), trace.name_of(row))
    assert (1736405443863674401, 1, 7, 8) == tuple(
        int(column[row]) for column in (trace.start_ns, trace.duration_ns, trace.pid, trace.tid)
    )
    assert _events(before) == {column: values[:row] for column, values in _events(trace).items()}


@present
def test_a_database_that_is_cut_off_is_flagged(tmp_path: Path) -> None:
    """
    What a copy has lost is not taken for an empty recording.
    """
    whole = DATA / "ascend" / DATABASES[0] / OUT / "ascend_pytorch_profiler_0.db"
    cut = tmp_path / whole.name
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])

    assert (0, Fault.TRUNCATED) == (len(traces.open(cut)), traces.open(cut).header.flags[0].fault)


def test_rows_without_times_are_counted_and_task_types_that_nobody_knows_are_named(tmp_path: Path) -> None:
    """
    A database of some future release: an unknown type is a kernel in a table, and what has no time is set apart.
    """
    path = tmp_path / "msprof_0.db"
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE TASK (startNs, endNs, deviceId, streamId, connectionId, taskType, globalTaskId);
            CREATE TABLE STRING_IDS (id INTEGER, value TEXT);
            INSERT INTO TASK VALUES (1700000000000000000, 1700000000000000005, 3, 4, 5, 6, 7), (NULL, 9, 3, 4, 5, 6, 8);
            INSERT INTO STRING_IDS VALUES (6, 'Write Value');
            """
        )
    database.close()

    trace = traces.open(path)

    assert (1, Kind.SYNC, 3, 4, 5) == (
        len(trace),
        *(int(column[0]) for column in (trace.kind, trace.device, trace.stream, trace.correlation)),
    )
    assert 1 == trace.header.unplaced[0].count
    table = tmp_path / "kernel_details.csv"
    table.write_text("Name,Accelerator Core,Start Time(us),Duration(us)\nk,QUANTUM,1.5,2\nl,AI_CORE,3\n")
    assert "QUANTUM" in traces.open(table).header.guesses[0]
    assert traces.open(table).header.has(Fault.TRUNCATED)


def _events(trace: Trace) -> Mapping[str, Any]:
    columns = ("start_ns", "duration_ns", "name", "kind", "track", "correlation")
    return {column: getattr(trace, column).tolist() for column in columns}
