"""
Tells what a file is, and has it read; what a reader can't make sense of becomes a flag.

Owns that nothing is raised for a broken file. Each format is its own module's.
"""

from collections.abc import Sequence
from pathlib import Path

from stepscope_sidecar.artifacts import InvalidArtifact, database
from stepscope_sidecar.artifacts.pieces import is_packed, open_raw
from stepscope_sidecar.traces import (
    ascend_db,
    ascend_header,
    ascend_table,
    chrome_file,
    folders,
    memory,
    nsys,
    speedscope,
)
from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.trace import Fault, Flag, Header, Trace

HEAD = 4096
"""Bytes by which a file is told."""

PICKLES = (".pkl", ".pickle")
SEVERAL = "the folder holds {} recordings; open them all, or one of them"
MEMORY = "a memory snapshot: {} segments hold {} bytes, and nothing in it has a length"
TABLE = "a table without columns of names and times: nothing in it tells of single events"
NO_FILE = "neither a file nor a folder, but a pipe, a socket or a device"
REPORT = "Nsight Systems' own report; export it with: nsys export --type sqlite"


def one(path: Path) -> Trace:
    """
    The recording at ``path``, or an empty one with a flag.
    """
    try:
        return _folder(path) if path.is_dir() else _file(path)
    except InvalidArtifact as error:
        fault = Fault.TRUNCATED if "cut off" in str(error) else Fault.INVALID
        return nothing(path, Flag(fault=fault, reason=str(error)))
    except FileNotFoundError as error:
        if not path.exists():
            raise
        return nothing(path, Flag(fault=Fault.EMPTY, reason=str(error)))
    except OSError as error:
        return nothing(path, Flag(fault=Fault.UNREADABLE, reason=f"{error.strerror or error}"))
    except Exception as error:  # noqa: BLE001 - no file may take down who shows the others, whatever is in it
        return nothing(path, Flag(fault=Fault.UNREADABLE, reason=f"the reader failed: {type(error).__name__}: {error}"))


def several(path: Path) -> Sequence[Trace]:
    """
    All recordings at ``path``; of a folder without any, one that says so.
    """
    found = folders.recordings(path) if path.is_dir() else []
    return [one(each) for each in found] or [one(path)]


def nothing(path: Path, *flags: Flag) -> Trace:
    """
    A recording without events, and why.
    """
    return Columns().trace(Header(path=path, format="unknown", flags=flags))


def _folder(path: Path) -> Trace:
    found = folders.recordings(path)
    if len(found) == 1:
        return folders.read(path) if found[0] == path else one(found[0])
    if found:
        return nothing(path, Flag(fault=Fault.UNREADABLE, reason=SEVERAL.format(len(found))))
    return nothing(path, Flag(fault=Fault.NO_EVENTS, reason="the folder holds no recording"))


def _file(path: Path) -> Trace:
    if path.exists() and not path.is_file():
        # Opening a pipe waits for who writes to it.
        return nothing(path, Flag(fault=Fault.UNREADABLE, reason=NO_FILE))
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head:
        return nothing(path, Flag(fault=Fault.EMPTY, reason="the file is empty"))
    flags = _name(path)
    if head.startswith(database.MAGIC):
        return _database(path, flags)
    if path.suffix == ".csv":
        if not ascend_table.is_one(path):
            return nothing(path, *flags, Flag(fault=Fault.UNKNOWN_FORMAT, reason=TABLE))
        return ascend_table.read(path, ascend_header.of_file(path, flags))
    if path.suffix in PICKLES:
        found = memory.read(path)
        told = Flag(fault=Fault.NO_EVENTS, reason=MEMORY.format(found.segments, found.reserved))
        return Columns().trace(Header(path=path, format="memory", flags=(*flags, told)))
    if path.suffix == ".nsys-rep":
        return nothing(path, Flag(fault=Fault.UNKNOWN_FORMAT, reason=REPORT))
    if speedscope.is_speedscope(_unpacked(path, head)):
        return speedscope.read(path, Header(path=path, format="speedscope", flags=tuple(flags)))
    return chrome_file.read(path, flags)


def _database(path: Path, flags: Sequence[Flag]) -> Trace:
    with database.opened(path) as connection:
        tables = database.tables(connection)
    if nsys.is_nsys(tables):
        return nsys.read(path, Header(path=path, format="nsys", flags=tuple(flags)))
    if "TASK" in tables:
        return ascend_db.read(path, ascend_header.of_file(path, flags))
    reason = "a database of no profiler that is known, or of sums only"
    return nothing(path, *flags, Flag(fault=Fault.UNKNOWN_FORMAT, reason=reason))


def _unpacked(path: Path, head: bytes) -> bytes:
    if not is_packed(path):
        return head
    try:
        with open_raw(path) as file:
            return file.read(HEAD)
    except (EOFError, OSError):
        return b""


def _name(path: Path) -> list[Flag]:
    packed = is_packed(path)
    if packed == (path.suffix == ".gz"):
        return []
    what = "gzip, and its name does not say so" if packed else "not gzip, though its name says so"
    return [Flag(fault=Fault.NAME_DECEIVES, reason=f"the file is {what}")]
