"""
Makes final files of the Chrome traces that an engine's own workers have written: one file, or a folder of them.

Owns what an engine leaves in a folder: which of it are traces, and how they together become one answer. Each trace is
``kineto``'s; on Ascend devices each worker leaves a folder, and those are ``ascend``'s. The spans of our process are
not put into the traces, because the workers are other processes: they, and which window the folder belongs to, stand
in files beside the traces.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stepscope.wire import Closed
from stepscope_sidecar.artifacts import (
    Artifact,
    InvalidArtifact,
    ascend,
    ascend_folder,
    away,
    continued,
    kineto,
    link,
    tree,
)
from stepscope_sidecar.artifacts.completeness import judge
from stepscope_sidecar.artifacts.survey import Recording
from stepscope_sidecar.jobs import Job

TRACES = (".json", ".json.gz")
"""How the names of traces end; whatever else an engine leaves is kept as it is."""


def make(job: Job) -> Artifact:
    """
    The final file or folder of a recording by an engine's profiler.
    """
    away.fetch(job.folder)
    path = tree.raw(job.folder, job.closed.artifact)
    if not path.is_dir():
        found = kineto.finalise(job.folder, _foreign(job.closed), pid=None)
        return _artifact([found], job.closed, found.path, found.bytes, found.sha256)
    if ascend_folder.recordings(path):
        return ascend.make(replace(job, closed=_foreign(job.closed)))
    for partial in path.rglob("*.partial"):
        partial.unlink()
    recordings = [kineto.finalise(trace.parent, _foreign(job.closed, trace.name), pid=None) for trace in _traces(path)]
    link.write(path, job.closed.metadata)
    link.write_spans(path, continued.events(job.closed, pid=job.pid, base=0, seen=frozenset()))
    return _artifact(recordings, job.closed, path, *tree.seal(path))


def _artifact(recordings: Sequence[Recording], closed: Closed, path: Path, size: int, sha256: str) -> Artifact:
    return Artifact(
        path=path,
        bytes=size,
        sha256=sha256,
        verdict=judge(recordings, closed),
        events=sum(found.events for found in recordings),
        first_unix_ns=min((found.first_unix_ns for found in recordings if found.first_unix_ns), default=0),
        last_unix_ns=max(found.last_unix_ns for found in recordings),
    )


def _traces(path: Path) -> Sequence[Path]:
    """
    The traces in ``path``; where one is there both raw and final, a crash has left the raw one, which counts.
    """
    ours = {link.LINK, link.SPANS}
    found = [file for file in tree.files(path) if file.name.endswith(TRACES) and file.name not in ours]
    raw = {file for file in found if not file.name.endswith(kineto.PACKED)}
    traces = [file for file in found if file in raw or file.with_suffix("") not in raw]
    if not traces:
        raise InvalidArtifact(f"no trace in {path.name}")
    return traces


def _foreign(closed: Closed, name: str = "") -> Closed:
    """
    The close record as it goes for a file of another process: no span of ours was mirrored into it.
    """
    return replace(closed, artifact=name or closed.artifact, mirrored=[], continued=[])
