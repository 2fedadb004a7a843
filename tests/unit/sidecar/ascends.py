"""
Folders as Ascend's profilers lay them out, small, for tests to bend; recorded ones are beside the repository.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from stepscope_sidecar.jobs import Job
from tests.unit.sidecar import traces

NAME = "rank1_4242_20260101000000000_ascend_pt"
SECRET = "hunter2-in-an-environment-variable"
MONOTONIC = 5_000_000_000
"""The host's monotonic clock when the session began."""

TASKS = 10
LENGTH = 1_000_000
"""Nanoseconds of each task; they follow each other from the window's opening on."""


def job(folder: Path, *, tool: str = "torch_npu", artifact: str = NAME, **changes: Any) -> Job:
    """
    A job for the recording in ``folder``.
    """
    closed = traces.closed(**{"artifact": artifact, "mirrored": [], **changes})
    return Job(folder=folder, closed=closed, pid=traces.PID, tool=tool)


def info(*, begin: int = traces.OPENED, end: int = traces.CLOSED, **changes: Any) -> dict[str, Any]:
    """
    What ``profiler_info`` says of a session from ``begin`` to ``end``.
    """
    told: dict[str, Any] = {
        "config": {
            "common_config": {"activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]},
            "experimental_config": {"_profiler_level": "Level1", "_export_type": ["db"]},
        },
        "start_info": {"syscnt_enable": True, "freq": 100, "start_cnt": 7, "start_monotonic": MONOTONIC},
        "end_info": {"collectionTimeEnd": end, "MonotonicTimeEnd": MONOTONIC + end - begin},
        "torch_npu_version": "2.13.0",
        "rank_id": 1,
    }
    return {**told, **changes}


def torch_npu(folder: Path, told: dict[str, Any] | None = None, *, name: str = NAME) -> Path:
    """
    The folder of a session without any data.
    """
    path = folder / name
    path.mkdir(parents=True)
    (path / "profiler_info_1.json").write_text(json.dumps(info() if told is None else told))
    metadata = {"stepscope.step": "5", "ENV_VARIABLES": {"HCCL_ALGO": SECRET}}
    (path / "profiler_metadata.json").write_text(json.dumps(metadata))
    return path


def raw(path: Path, *, host: bool = True, device: int | None = 3) -> Path:
    """
    Add raw data, of which nothing is read.
    """
    if host:
        (path / "FRAMEWORK").mkdir()
        (path / "FRAMEWORK" / "torch.op_range").write_bytes(b"\0\1")
    data = path / "PROF_000001_20260101000000000_ABCDEF"
    (data / "host").mkdir(parents=True)
    (data / "host" / "end_info").write_text("{}")
    if device is not None:
        (data / f"device_{device}" / "data").mkdir(parents=True)
        (data / f"device_{device}" / "data" / "ts_track.data.3.slice_0").write_bytes(b"\0\1\2")
    return path


def database(
    path: Path,
    *,
    lost: tuple[int, ...] = (),
    marks: tuple[str, ...] = (),
    name: str = "ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_1.db",
) -> Path:
    """
    Add a database of ten launches and their tasks, less those that are ``lost``, and of ``marks``; the file.
    """
    file = path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript("""
            CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
            CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY, name TEXT);
            CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER,
                                   connectionId INTEGER PRIMARY KEY, name INTEGER);
            CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER,
                               globalTaskId INTEGER);
            CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY);
            CREATE TABLE META_DATA (name TEXT, value TEXT);
            INSERT INTO ENUM_API_TYPE VALUES (10000, 'node'), (20000, 'acl');
            INSERT INTO STRING_IDS VALUES (1, 'launch'), (2, 'aclnnMm'), (3, 'MatMulV2');
        """)
        connection.execute("INSERT INTO META_DATA VALUES ('ENV_VARIABLES', ?)", (json.dumps({"HCCL_ALGO": SECRET}),))
        for number in range(TASKS):
            start = traces.OPENED + number * LENGTH
            # Numbers of connections go down while time goes up: it is time that says what came first.
            connection.execute("INSERT INTO CANN_API VALUES (?, ?, 10000, 1, ?, 1)", (start, start, 100 - number))
            connection.execute("INSERT INTO CANN_API VALUES (?, ?, 20000, 1, ?, 2)", (start, start, 1000 + number))
            if number not in lost:
                task = (start, start + LENGTH, 3, 100 - number, number)
                connection.execute("INSERT INTO TASK VALUES (?, ?, ?, ?, ?)", task)
                if number % 2:
                    connection.execute("INSERT INTO COMPUTE_TASK_INFO VALUES (3, ?)", (number,))
        connection.executemany("INSERT INTO STRING_IDS (value) VALUES (?)", [(mark,) for mark in marks])
    return file


def table(path: Path, *, name: str = "ASCEND_PROFILER_OUTPUT/kernel_details.csv") -> Path:
    """
    Add a table of two kernels and a collective, as CANN 8.3 lays it out; the file.
    """
    file = path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    start = traces.OPENED
    rows = [
        "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Input Shapes",
        f'1,3,a,MatMulV2,AI_CORE,"{start // 1000}.{start % 1000:03d}\t",7.250,"""4,4"""',
        f'1,3,b,Add,AI_VECTOR_CORE,"{start // 1000 + 10}.500\t",0.5,"""4"""',
        f'1,3,hcom_allReduce__1,hcom_allReduce_,COMMUNICATION,"{start // 1000 + 20}.000\t",1000,N/A',
    ]
    file.write_bytes("\r\n".join([*rows, ""]).encode())
    return file


def timeline(path: Path, *, marks: tuple[str, ...] = (), name: str = "ASCEND_PROFILER_OUTPUT/trace_view.json") -> Path:
    """
    Add a timeline with ``marks``: a bare list, times in text; the file.
    """
    file = path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    names = ["aten::mm", *marks]
    events = [
        {"ph": "X", "name": one, "pid": 2, "tid": 2, "ts": f"{traces.OPENED // 1000 + 1}.250", "dur": 6.280125}
        for one in names
    ]
    file.write_text(json.dumps([{"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "Python"}}, *events]))
    return file
