"""
Exports of Nsight Systems, and memory snapshots, read against what an independent script found in them.
"""

import pickle
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from stepscope_sidecar import traces
from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.traces import Clock, Fault, Kind, memory
from tests.unit.sidecar.recorded import facts, present, top
from tests.unit.sidecar.traces import DATA

EXPORT = "nsys/cloverleaf_cuda_a100_nsys2024.5.sqlite"
SNAPSHOT = "memory_snapshot/snapshot_1768383987920985470.pkl"


@present
def test_an_export_is_read_to_the_nanosecond() -> None:
    """
    Kernels (count, sum, top five, first start since the epoch), copies and calls are those of the facts, and each
    kernel has its call.
    """
    fact, trace = facts()[EXPORT], traces.open(DATA / EXPORT)
    rows, told = trace.rows(Kind.KERNEL), fact["kernels"]
    calls = trace.rows(Kind.RUNTIME, Kind.DRIVER)
    copies = trace.rows(Kind.MEMCPY)

    assert ("nsys", Clock.EPOCH, ()) == (trace.header.format, trace.header.clock, trace.header.flags)
    assert (told["count"], told["sum_ns"]) == (len(rows), int(trace.duration_ns[rows].sum()))
    assert told["first_epoch_ns"] == int(trace.start_ns[rows].min())
    assert told["last_end_ns"] + fact["session_start"][0] == int(trace.end_ns[rows].max())
    assert told["top5_shortName"] == top(trace, rows)
    assert told["correlation_matched_to_runtime"] == np.isin(trace.correlation[rows], trace.correlation[calls]).sum()
    assert fact["CUPTI_ACTIVITY_KIND_MEMCPY"] == [len(copies), int(trace.duration_ns[copies].sum())]
    assert fact["CUPTI_ACTIVITY_KIND_RUNTIME"] == [len(calls), int(trace.duration_ns[calls].sum())]
    assert {"Memcpy HtoD", "Memcpy DtoH"} <= {trace.name_of(row) for row in copies}


@present
def test_nothing_of_the_environment_or_the_node_is_in_a_trace() -> None:
    """
    An export holds environments and the names of all processes; of its text only names of events are read.
    """
    trace = traces.open(DATA / EXPORT)

    assert not [name for name in trace.names if "\0" in name or "=" in name or name.startswith("/")]
    assert {} == trace.header.metadata


def test_ranges_and_two_processes_are_kept_apart(tmp_path: Path) -> None:
    """
    NVTX ranges become annotations, by text or by the text's id; correlations of two processes, which both count from
    one, do not meet; without a start of the session times have no epoch.
    """
    path, one, two = tmp_path / "report.sqlite", 101 << 24, 102 << 24
    with sqlite3.connect(path) as database:
        database.executescript(
            f"""
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            INSERT INTO StringIds VALUES (1, 'kernel'), (2, 'cudaLaunchKernel'), (3, 'told by id');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
                (start, "end", deviceId, streamId, correlationId, globalPid, shortName);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20, 30, 0, 7, 1, {one}, 1), (40, 50, 0, 7, 1, {two}, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
                (start, "end", eventClass, globalTid, correlationId, nameId);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 11, 0, {one | 5}, 1, 2), (12, 13, 1, {two | 6}, 1, 2);
            CREATE TABLE NVTX_EVENTS (start, "end", eventType, globalTid, text, textId);
            INSERT INTO NVTX_EVENTS VALUES (5, 15, 59, {one | 5}, 'told', NULL), (5, 16, 60, {two | 6}, NULL, 3),
                (5, NULL, 34, {one | 5}, 'a mark', NULL);
            """
        )
    database.close()

    trace = traces.open(path)
    rows = trace.rows(Kind.ANNOTATION)
    kernels, calls = trace.rows(Kind.KERNEL), trace.rows(Kind.RUNTIME, Kind.DRIVER)

    assert [("told", 101, 5), ("told by id", 102, 6)] == [
        (trace.name_of(row), int(trace.pid[row]), int(trace.tid[row])) for row in rows
    ]
    assert trace.correlation[kernels].tolist() == trace.correlation[calls].tolist()
    assert 2 == len(set(trace.correlation[kernels].tolist()))
    assert [Kind.RUNTIME, Kind.DRIVER] == trace.kind[calls].tolist()
    assert (Clock.RELATIVE, True) == (trace.header.clock, trace.header.has(Fault.NO_EPOCH))


@present
def test_a_memory_snapshot_is_summed_up() -> None:
    """
    Segments, bytes, states of blocks and traced actions are those of the facts; as a trace it has no events.
    """
    fact, found = facts()[SNAPSHOT], memory.read(DATA / SNAPSHOT)

    assert (fact["segments"], fact["total_size"]) == (found.segments, found.reserved)
    assert (fact["allocated_size"], fact["active_size"]) == (found.allocated, found.active)
    assert (fact["block_states"], fact["actions"]) == (found.blocks, found.actions)
    assert (fact["device_traces"], fact["has_time_us"]) == (list(found.entries), found.timed)
    trace = traces.open(DATA / SNAPSHOT)
    assert ("memory", Fault.NO_EVENTS) == (trace.header.format, trace.header.flags[0].fault)


def test_a_pickle_that_names_something_to_be_called_is_refused(tmp_path: Path) -> None:
    """
    Nothing in it runs, whoever wrote it.
    """
    path = tmp_path / "snapshot.pkl"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [], "more": Path.cwd}))

    with pytest.raises(InvalidArtifact, match="refused"):
        memory.read(path)
    assert [Fault.INVALID] == [flag.fault for flag in traces.open(path).header.flags]
