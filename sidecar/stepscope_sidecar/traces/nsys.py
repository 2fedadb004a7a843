"""
Reads what Nsight Systems exports as SQLite.

Owns its tables, which are there only if there was something for them, and its clock. Environments, names of the node's
processes and calls of the operating system are not read.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepscope_sidecar.artifacts import database
from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.tables import Names, strings, take
from stepscope_sidecar.traces.trace import NONE, Clock, Fault, Flag, Header, Ints, Kind, Trace

EXPORTS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""What the table of the export's own facts is called, in 2024.5 and in 2022.2."""

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
SESSION = "TARGET_INFO_SESSION_START_TIME"

NVTX = "NVTX_EVENTS"

ON_DEVICE = """
    SELECT start, "end", {name}, deviceId, streamId, {correlation}, NULL FROM {table} ORDER BY rowid
"""
ON_HOST = """
    SELECT start, "end", {name}, (globalTid >> 24) & 16777215, globalTid & 16777215, {correlation}, {kind}
    FROM {table} {where} ORDER BY rowid
"""

COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
"""What copyKind says."""

RANGES = 'WHERE eventType IN (59, 60) AND "end" IS NOT NULL'
"""Of NVTX: ranges that were pushed and popped, or started and ended."""

NAMES = "SELECT id, value FROM StringIds WHERE id IN ({ids})"
TEXTS = """
    SELECT n.rowid, coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = {text}
    WHERE n.rowid IN ({{ids}})
"""

ALL = 4294967295
"""Stands for no stream in particular."""

DRIVER = 1
"""The eventClass of calls of the driver's interface."""


def is_nsys(tables: dict[str, frozenset[str]]) -> bool:
    """
    Whether a database with these tables is one of Nsight Systems.
    """
    return KERNELS in tables or SESSION in tables or any(name in tables for name in EXPORTS)


def read(path: Path, header: Header) -> Trace:
    """
    The events of the database at ``path``.

    Raises:
        InvalidArtifact: it is cut off.
    """
    with database.opened(path) as connection:
        return _Export(connection, database.tables(connection)).trace(header)


class _Export:
    def __init__(self, connection: sqlite3.Connection, tables: dict[str, frozenset[str]]) -> None:
        self._connection = connection
        self._tables = tables
        self._columns = Columns()

    def trace(self, header: Header) -> Trace:
        """
        The whole.
        """
        columns, names = self._columns, strings(self._connection, NAMES)
        self._device(KERNELS, "shortName", names, Kind.KERNEL)
        self._device("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", _copies, Kind.MEMCPY)
        self._device("CUPTI_ACTIVITY_KIND_MEMSET", "NULL", _called("Memset"), Kind.MEMSET)
        self._device("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "NULL", _called("Synchronization"), Kind.SYNC)
        self._host("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId", names, _calls, kind_id="eventClass")
        self._host("PROFILER_OVERHEAD", "nameId", names, Kind.OVERHEAD, correlation="NULL")
        if NVTX in self._tables:
            text = "n.textId" if "textId" in self._tables[NVTX] else "NULL"
            texts = strings(self._connection, TEXTS.format(text=text))
            self._host(NVTX, "rowid", texts, Kind.ANNOTATION, correlation="NULL", where=RANGES)
        base, reason = self._base()
        flags = [*header.flags, *([Flag(fault=Fault.NO_EPOCH, reason=reason)] if reason else [])]
        if not columns.length:
            flags.append(Flag(fault=Fault.NO_EVENTS, reason="no table of CUDA's activities or of ranges"))
        made = replace(
            header,
            era=f"Nsight Systems {self._told('EXPORT_PRODUCT_VERSION') or 'of an unknown version'}",
            clock=Clock.RELATIVE if reason else Clock.EPOCH,
            clock_reason=reason,
            base_ns=base,
            devices=self._devices(),
            flags=tuple(flags),
            unplaced=columns.lacking(),
        )
        return columns.trace(made, offset_ns=base)

    def _device(self, table: str, name: str, names: Names, kind: Kind) -> None:
        if table in self._tables:
            query = ON_DEVICE.format(table=table, name=name, correlation=self._correlation("globalPid"))
            take(self._connection, query, self._columns, names=names, track=self._stream, kind=kind)

    def _host(
        self,
        table: str,
        name: str,
        names: Names,
        kind: Kind | Callable[[Ints], Ints],
        *,
        correlation: str = "",
        where: str = "",
        kind_id: str = "NULL",
    ) -> None:
        if table in self._tables:
            told = correlation or self._correlation("globalTid")
            query = ON_HOST.format(table=table, name=name, correlation=told, where=where, kind=kind_id)
            take(self._connection, query, self._columns, names=names, track=self._columns.host, kind=kind)

    def _correlation(self, place: str) -> str:
        """
        What makes correlations of several processes differ, which all count from one.
        """
        several = False
        if KERNELS in self._tables:
            query = f"SELECT count(DISTINCT globalPid) FROM {KERNELS}"  # noqa: S608 - a constant
            several = self._connection.execute(query).fetchone()[0] > 1
        return f"correlationId | ((({place} >> 24) & 16777215) << 32)" if several else "correlationId"

    def _stream(self, device: int, stream: int) -> int:
        return self._columns.device(device, NONE if stream == ALL else stream)

    def _told(self, key: str) -> str:
        for table in EXPORTS:
            if table in self._tables:
                query = f"SELECT value FROM {table} WHERE name = ?"  # noqa: S608 - one of two constants
                for (value,) in self._connection.execute(query, (key,)):
                    return str(value)
        return ""

    def _base(self) -> tuple[int, str]:
        """
        What makes times of the file the epoch's, and why there is nothing.
        """
        shift = self._told("EXPORT_PARAM_TIME_SHIFT")
        moved = int(shift) if shift.lstrip("-").isdecimal() else 0
        if self._told("EXPORT_PARAM_TIME_NORMALIZE") == "true":
            return -moved, ""
        if "utcEpochNs" in self._tables.get(SESSION, ()):
            for (began,) in self._connection.execute(f"SELECT utcEpochNs FROM {SESSION} LIMIT 1"):  # noqa: S608
                return int(began) - moved, ""
        return 0, "times count from the start of the session, and the file does not say when that was"

    def _devices(self) -> tuple[str, ...]:
        if "name" not in self._tables.get("TARGET_INFO_GPU", ()):
            return ()
        return tuple(str(name) for (name,) in self._connection.execute("SELECT name FROM TARGET_INFO_GPU ORDER BY id"))


def _copies(ids: Sequence[int]) -> Iterator[tuple[int, str]]:
    return ((one, f"Memcpy {COPIES.get(one, 'of an unknown kind')}") for one in ids)


def _called(name: str) -> Names:
    return lambda ids: ((one, name) for one in ids)


def _calls(classes: Ints) -> Ints:
    return np.where(classes == DRIVER, Kind.DRIVER, Kind.RUNTIME).astype(np.int64)
