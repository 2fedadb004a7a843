"""
What is known of Ascend's recordings from the folder that they are in: their rank, session, versions, and window.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from stepscope_sidecar.artifacts import InvalidArtifact, ascend_folder, link
from stepscope_sidecar.artifacts.ascend_folder import OUTPUTS, Folder
from stepscope_sidecar.traces.trace import Fault, Flag, Header


def of_file(path: Path, flags: Sequence[Flag] = ()) -> Header:
    """
    What is known of a file of Ascend's from the folder that it is in.
    """
    inside = path.parent.name in OUTPUTS
    try:
        known = of_folder(ascend_folder.read(path.parent.parent)) if inside else None
    except (InvalidArtifact, FileNotFoundError):
        known = None
    plain = "msprof" if path.name.startswith(("msprof", "op_summary")) else "torch_npu"
    found = known or Header(path=path, format=plain)
    return replace(found, path=path, flags=tuple(flags))


def of_folder(folder: Folder) -> Header:
    """
    What is known of a recording that is a folder.
    """
    info, metadata = folder.info, _metadata(folder.path)
    rank = info.rank if info is not None else None
    session = (info.begin_unix_ns, info.end_unix_ns) if info is not None else (0, 0)
    flags = [Flag(fault=Fault.TRUNCATED, reason=lack) for lack in ascend_folder.lacks(folder)]
    return Header(
        path=folder.path,
        format="torch_npu" if info is not None else "msprof",
        era=", ".join(info.versions) if info is not None else "",
        rank=rank,
        rank_from="profiler_info" if rank is not None else "",
        session_ns=session if all(session) else None,
        metadata=metadata,
        flags=tuple(flags),
    )


def _metadata(path: Path) -> dict[str, str]:
    """
    What stepscope has put into the folder.
    """
    try:
        told = orjson.loads((path / link.LINK).read_bytes())
    except (OSError, ValueError):
        return {}
    some = told.items() if isinstance(told, dict) else ()
    return {key: value for key, value in some if key.startswith("stepscope.") and isinstance(value, str)}
