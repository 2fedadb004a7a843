"""
Reads the databases of Ascend's profilers: ``ascend_pytorch_profiler_*.db`` and ``msprof_*.db``.

Owns their tables. Times are nanoseconds since the epoch, in some tables as text. Metadata, which holds settings of the
environment, is not read.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepscope_sidecar.artifacts import InvalidArtifact, database
from stepscope_sidecar.traces import ascend_kinds
from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.tables import strings, take
from stepscope_sidecar.traces.trace import NONE, Header, Ints, Kind, Trace

TASKS = """
    SELECT t.startNs, t.endNs, coalesce(c.name, t.taskType), t.deviceId, t.streamId, t.connectionId,
    CASE WHEN c.name IS NULL THEN t.taskType ELSE -2 END
    FROM TASK t LEFT JOIN (SELECT globalTaskId, min(name) AS name FROM COMPUTE_TASK_INFO GROUP BY globalTaskId) c
    ON c.globalTaskId = t.globalTaskId ORDER BY t.rowid
"""
"""What is listed as a computation is called by its name, and everything else by its type."""

BARE_TASKS = """
    SELECT startNs, endNs, taskType, deviceId, streamId, connectionId, taskType FROM TASK ORDER BY rowid
"""

COLLECTIVES = "SELECT startNs, endNs, opName, {device}, NULL, connectionId, NULL FROM COMMUNICATION_OP ORDER BY rowid"

CALLS = """
    SELECT startNs, endNs, name, globalTid >> 32, globalTid & 4294967295, connectionId, NULL
    FROM CANN_API ORDER BY rowid
"""

OPERATORS = """
    SELECT CAST(startNs AS INTEGER), CAST(endNs AS INTEGER), name, globalTid >> 32, globalTid & 4294967295, NULL, type
    FROM PYTORCH_API ORDER BY rowid
"""

MARKS = """
    SELECT startNs, endNs, message, globalTid >> 32, globalTid & 4294967295, connectionId, NULL
    FROM MSTX_EVENTS WHERE endNs >= startNs ORDER BY rowid
"""

LAUNCHES = """
    SELECT i.connectionId, p.globalTid >> 32, p.globalTid & 4294967295, min(CAST(p.startNs AS INTEGER))
    FROM PYTORCH_API p JOIN CONNECTION_IDS i ON i.id = p.connectionId
    WHERE p.type IN (50001, 50004) AND i.connectionId IN (SELECT connectionId FROM TASK) GROUP BY i.connectionId
"""
"""Operators and marks, not the queue between host threads, whose ids are of another kind."""

TYPES = "SELECT id, value FROM STRING_IDS WHERE id IN (SELECT DISTINCT taskType FROM TASK)"

NAMES = "SELECT id, value FROM STRING_IDS WHERE id IN ({ids})"

COMPUTATION = -2
OPERATOR, PYTHON, MARK = 50001, 50003, 50004
"""ENUM_API_TYPE."""

STEP = "ProfilerStep#"


def read(path: Path, header: Header) -> Trace:
    """
    The events of the database at ``path``.

    Raises:
        InvalidArtifact: it is cut off, or has no tasks.
    """
    with database.opened(path) as connection:
        tables = database.tables(connection)
        if "TASK" not in tables:
            raise InvalidArtifact(f"{path.name} has no table TASK")
        return _Database(connection, tables).trace(header)


class _Database:
    def __init__(self, connection: sqlite3.Connection, tables: dict[str, frozenset[str]]) -> None:
        self._connection = connection
        self._tables = tables
        self._types: dict[int, str] = {}

    def trace(self, header: Header) -> Trace:
        """
        The whole.
        """
        columns = Columns()
        if "taskType" in self._tables["TASK"]:
            told = self._connection.execute(TYPES) if "STRING_IDS" in self._tables else ()
            self._types = {int(one): str(value) for one, value in told}
        tasks = TASKS if "COMPUTE_TASK_INFO" in self._tables else BARE_TASKS
        self._take(tasks, columns, columns.device, self._tasks)
        if "COMMUNICATION_OP" in self._tables:
            query = COLLECTIVES.format(device=self._device())
            self._take(query, columns, lambda device, _: columns.device(device, NONE), Kind.COMMUNICATION)
        for table, query, kind in (
            ("CANN_API", CALLS, Kind.RUNTIME),
            ("PYTORCH_API", OPERATORS, _operators),
            ("MSTX_EVENTS", MARKS, Kind.ANNOTATION),
        ):
            if table in self._tables:
                self._take(query, columns, columns.host, kind)
        if {"PYTORCH_API", "CONNECTION_IDS"} <= self._tables.keys():
            for connection, pid, tid, at in self._connection.execute(LAUNCHES):
                columns.point(int(connection), columns.host(int(pid), int(tid)), int(at))
        return corrected(columns.trace(self._header(header, columns)))

    def _take(
        self,
        query: str,
        columns: Columns,
        track: Callable[[int, int], int],
        kind: Kind | Callable[[Ints], Ints],
    ) -> None:
        take(self._connection, query, columns, names=strings(self._connection, NAMES), track=track, kind=kind)

    def _tasks(self, types: Ints) -> Ints:
        kinds = {one: ascend_kinds.kind(name) for one, name in self._types.items()}
        # What runs on a core and is no computation is a part of a collective.
        kinds = {one: Kind.OTHER if kind is Kind.KERNEL else kind for one, kind in kinds.items()}
        kinds[COMPUTATION] = Kind.KERNEL
        return np.array([kinds.get(one, Kind.OTHER) for one in types.tolist()], dtype=np.int64)

    def _device(self) -> int:
        """
        The device of collectives, which do not say it: that of the tasks, if it is one.
        """
        devices = [int(one) for (one,) in self._connection.execute("SELECT DISTINCT deviceId FROM TASK LIMIT 2")]
        return devices[0] if len(devices) == 1 else NONE

    def _header(self, header: Header, columns: Columns) -> Header:
        rank, rank_from, session = header.rank, header.rank_from, header.session_ns
        if "RANK_DEVICE_MAP" in self._tables:
            for (told,) in self._connection.execute("SELECT rankId FROM RANK_DEVICE_MAP LIMIT 1"):
                rank, rank_from = (int(told), "RANK_DEVICE_MAP") if int(told) >= 0 else (rank, rank_from)
        if "SESSION_TIME_INFO" in self._tables:
            for begin, end in self._connection.execute("SELECT startTimeNs, endTimeNs FROM SESSION_TIME_INFO LIMIT 1"):
                session = (int(begin), int(end))
        devices: tuple[str, ...] = ()
        if "NPU_INFO" in self._tables:
            devices = tuple(str(name) for (name,) in self._connection.execute("SELECT name FROM NPU_INFO ORDER BY id"))
        return replace(
            header,
            era=header.era or "torch_npu or msprof, database",
            rank=rank,
            rank_from=rank_from,
            session_ns=session,
            devices=devices,
            unplaced=columns.lacking(),
        )


def corrected(trace: Trace) -> Trace:
    """
    The trace with steps of a schedule as annotations, and without the copies that collectives are made of as work.
    """
    kinds = trace.kind.copy()
    kinds[trace.named(lambda name: name.startswith(STEP)) & (kinds == Kind.CPU_OP)] = Kind.ANNOTATION
    kinds[ascend_kinds.parts(kinds, trace.correlation, trace.on_device)] = Kind.OTHER
    return replace(trace, kind=kinds)


def _operators(types: Ints) -> Ints:
    kinds = {OPERATOR: Kind.CPU_OP, PYTHON: Kind.PYTHON, MARK: Kind.ANNOTATION}
    return np.array([kinds.get(one, Kind.OTHER) for one in types.tolist()], dtype=np.int64)
