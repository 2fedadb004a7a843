"""
Reads folders that Ascend's profilers leave, and finds what recordings a folder of an engine's workers holds.

Owns which of a folder's files is read: databases before timelines before tables, which say the same with less in them.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepscope_sidecar.artifacts import InvalidArtifact, ascend_folder, link
from stepscope_sidecar.traces import ascend_db, ascend_header, ascend_table, chrome_file
from stepscope_sidecar.traces.joining import join
from stepscope_sidecar.traces.trace import Header, Trace

FILES = (".json", ".json.gz", ".sqlite", ".db", ".csv")
"""How the names of recordings end that stand in a folder by themselves."""

RAW = "raw data, which torch_npu or msprof has not analysed yet"
SUMS = "the analysed data holds sums only: nothing in it tells of single events"


def recordings(path: Path) -> Sequence[Path]:
    """
    The recordings in the folder at ``path``.
    """
    if found := ascend_folder.recordings(path):
        return found
    ours = {link.LINK, link.SPANS}
    return sorted(
        file
        for file in path.rglob("*")
        if file.name.endswith(FILES) and file.name not in ours and not file.is_symlink() and file.is_file()
    )


def read(path: Path) -> Trace:
    """
    The recording in the folder at ``path``, one of those of Ascend's.

    Raises:
        InvalidArtifact: it holds nothing that can be read.
        FileNotFoundError: it is empty.
    """
    folder = ascend_folder.read(path)
    header = ascend_header.of_folder(folder)
    sources = next(filter(None, (folder.databases, folder.traces, folder.tables)), [])
    if not sources:
        raise InvalidArtifact(SUMS if folder.outputs else RAW)
    if sources is folder.traces:
        trace = chrome_file.read_all(sources, header)
    else:
        trace = _one(sources[0], header, more=len(sources) - 1)
    spans = path / link.SPANS
    return join(trace, chrome_file.read_all([spans], header)) if spans.is_file() else trace


def _one(source: Path, header: Header, *, more: int) -> Trace:
    reader = ascend_db.read if source.suffix == ".db" else ascend_table.read
    trace = reader(source, header)
    if not more:
        return trace
    left = f"of {more + 1} files like {source.name} only that one is read"
    return replace(trace, header=replace(trace.header, guesses=(*trace.header.guesses, left)))
