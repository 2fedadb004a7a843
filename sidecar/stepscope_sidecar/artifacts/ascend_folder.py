"""
What lies in a folder that Ascend's profilers have written, and from when to when they say they were on.

Owns names of files and folders, ``profiler_info`` and its clocks; reads no events. Two layouts: torch_npu's
``*_ascend_pt`` and msprof's ``PROF_*``, alone or several in one folder; each raw, or analysed as well.
"""

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from stepscope_sidecar.artifacts import InvalidArtifact, tree
from stepscope_sidecar.artifacts.parsing import paired

INFO = re.compile(r"profiler_info(_-?\d+)?\.json")
CANN = re.compile(r"PROF_\d+_\d+_[0-9a-zA-Z]+")
"""A folder of CANN's, in both layouts; msprof names its own so too."""

FRAMEWORK = "FRAMEWORK"
"""The folder of what torch_npu has recorded on the host, raw."""

OUTPUTS = frozenset({"ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output"})
"""Folders of what analysis has made."""

DATABASE = re.compile(r"(ascend_pytorch_profiler|msprof)(_\d+)?\.db")
TABLE = re.compile(r"(kernel_details|op_summary(_slice_\d+)?(_\d+)?)\.csv")
TRACE = re.compile(r"(trace_view|msprof(_slice_\d+)?(_\d+)?)\.json")

MAX_INFO = 1 << 20
"""Bytes of ``profiler_info``; the recorded ones have 1.5 kB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Info:
    """
    What ``profiler_info`` says. Times are unix-epoch ns, 0 where it does not say.
    """

    begin_unix_ns: int = 0
    end_unix_ns: int = 0
    activities: frozenset[str] = frozenset()
    rank: int | None = None
    """None where it does not know, which it writes as -1."""
    versions: tuple[str, ...] = ()
    """Of torch_npu and CANN, where recent files name them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """
    A recording's folder. ``info`` is None in msprof's layout.
    """

    path: Path
    info: Info | None
    outputs: list[Path]
    """Folders of analysed data."""
    databases: list[Path]
    tables: list[Path]
    """CSV files of the tasks on the device."""
    traces: list[Path]
    devices: frozenset[int]
    """Numbers of the devices of which there is raw data, which are no ranks."""
    host: bool
    """Whether torch_npu's raw data of the host is there."""


def recordings(path: Path) -> list[Path]:
    """
    The recordings at ``path``: itself, or those that the workers of an engine have put into it.
    """
    if not path.is_dir():
        return []
    here = sorted(path.iterdir())
    if CANN.fullmatch(path.name) or any(INFO.fullmatch(one.name) or CANN.fullmatch(one.name) for one in here):
        return [path]
    return [one for one in here if not one.is_symlink() and any(INFO.fullmatch(name.name) for name in _within(one))]


def read(path: Path) -> Folder:
    """
    What lies in ``path``.

    Raises:
        FileNotFoundError: nothing does.
        InvalidArtifact: it is no folder of Ascend's, or its ``profiler_info`` cannot be read.
    """
    files = tree.files(path)
    infos = [file for file in files if file.parent == path and INFO.fullmatch(file.name)]
    below = [file.relative_to(path) for file in files]
    if not infos and not any(map(CANN.fullmatch, [path.name, *(one.parts[0] for one in below)])):
        raise InvalidArtifact(f"neither profiler_info nor PROF_... in {path.name}: it was not stopped in order")
    analysed = [file for file in files if file.parent.name in OUTPUTS]
    return Folder(
        path=path,
        info=_info(infos[0]) if infos else None,
        outputs=[folder for folder in _folders(path) if folder.name in OUTPUTS],
        databases=[file for file in analysed if DATABASE.fullmatch(file.name)],
        tables=[file for file in analysed if TABLE.fullmatch(file.name)],
        traces=[file for file in analysed if TRACE.fullmatch(file.name)],
        devices=frozenset(
            int(part.removeprefix("device_"))
            for file, one in zip(files, below, strict=True)
            for part in one.parts[:-1]
            if re.fullmatch(r"device_\d{1,3}", part) and file.stat().st_size
        ),
        host=any(FRAMEWORK in one.parts[:-1] for one in below),
    )


def lacks(folder: Folder) -> list[str]:
    """
    What should lie there and does not, in words.
    """
    found = []
    if folder.info is not None and not folder.outputs:
        # Of analysed data the raw may have been removed; nobody misses it.
        if "NPU" in folder.info.activities and not folder.devices:
            found.append("no data of a device")
        if "CPU" in folder.info.activities and not folder.host:
            found.append("no data of the host")
    if folder.info is None and not folder.outputs and not folder.devices:
        found.append("no data of a device")
    for output in folder.outputs:
        if not any(file.parent == output for file in (*folder.databases, *folder.tables, *folder.traces)):
            found.append(f"no events in {output.name}")
    return found


def _within(path: Path) -> Iterator[Path]:
    return path.iterdir() if path.is_dir() else iter(())


def _folders(path: Path) -> Iterator[Path]:
    return (found for found in sorted(path.rglob("*")) if stat.S_ISDIR(found.lstat().st_mode))


def _info(path: Path) -> Info:
    try:
        if path.stat().st_size > MAX_INFO:
            raise InvalidArtifact(f"{path.name} has more than {MAX_INFO} bytes")
        told = orjson.loads(paired(path.read_bytes()))
    except orjson.JSONDecodeError as error:
        raise InvalidArtifact(f"{path.name} is not JSON: {error}") from None
    told = told if isinstance(told, dict) else {}
    start, end = _object(told, "start_info"), _object(told, "end_info")
    named = _object(_object(told, "config"), "common_config").get("activities")
    activities = named if isinstance(named, list) else []
    begin, offset = _number(start.get("start_monotonic")), _offset(end)
    return Info(
        begin_unix_ns=begin + offset if begin and offset else 0,
        end_unix_ns=_number(end.get("collectionTimeEnd")),
        activities=frozenset(str(one).removeprefix("ProfilerActivity.") for one in activities),
        rank=_rank(told),
        versions=tuple(
            f"{name} {told[key]}"
            for key, name in (("torch_npu_version", "torch_npu"), ("cann_version", "CANN"))
            if isinstance(told.get(key), str)
        ),
    )


def _rank(told: dict[str, object]) -> int | None:
    rank = told.get("rank_id")
    if isinstance(rank, str) and rank.isdecimal():
        return int(rank)
    return rank if isinstance(rank, int) and rank >= 0 else None


def _offset(end: dict[str, object]) -> int:
    """
    From the host's monotonic clock to the epoch; the two were read one after the other.
    """
    unix, monotonic = _number(end.get("collectionTimeEnd")), _number(end.get("MonotonicTimeEnd"))
    return unix - monotonic if unix and monotonic else 0


def _object(value: object, key: str) -> dict[str, object]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
