"""
Makes the final artifact of what Ascend's profilers leave behind: the folder, checked, linked, hashed, and kept whole.

Owns the verdict on such a folder. What lies in it is told by ``ascend_folder``, what ran on the device by
``ascend_tasks``. Nothing in it is executed or unpickled, and nothing of its metadata, which holds settings of the
environment, leaves it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepscope.names import Incomplete
from stepscope.wire import Closed
from stepscope_sidecar.artifacts import Artifact, InvalidArtifact, Verdict, ascend_folder, continued, link, tree
from stepscope_sidecar.artifacts.ascend_folder import Folder
from stepscope_sidecar.artifacts.ascend_tasks import Tasks, from_database, from_table
from stepscope_sidecar.artifacts.completeness import judge
from stepscope_sidecar.artifacts.launches import NEAR, Launched
from stepscope_sidecar.artifacts.pieces import Pieces, open_raw
from stepscope_sidecar.artifacts.survey import Recording, Survey
from stepscope_sidecar.jobs import Job

RAW = "raw data: its tasks and marks can be told when torch_npu or msprof has analysed it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """
    What a folder holds: its files, the tasks in them, and in words what is missing or cut off.
    """

    folder: Folder
    tasks: Tasks
    broken: list[str]

    @property
    def session_unix_ns(self) -> tuple[int, int]:
        """
        From when to when the profiler says it was on; zeros where it does not say.
        """
        info = self.folder.info
        told = (info.begin_unix_ns, info.end_unix_ns) if info is not None else (0, 0)
        return told if all(told) else self.tasks.session_unix_ns


def make(job: Job) -> Artifact:
    """
    The folder, with files in it that say which window it is of, and what spans there were that have no mark. It is
    analysed no further than it was.
    """
    path = tree.raw(job.folder, job.closed.artifact)
    if path.is_file():
        raise InvalidArtifact(f"{path.name} is not a folder")
    # What is no recording is looked at all the same: that says why it is none.
    found = [inspect(one, wanted=job.closed.mirrored) for one in ascend_folder.recordings(path) or [path]]
    link.write(path, job.closed.metadata)
    mirrored = {span.lower() for span in job.closed.mirrored}
    # On the clock of its timelines, so that a viewer shows both in one.
    link.write_spans(path, continued.events(job.closed, pid=job.pid, base=0, seen=mirrored))
    size, sha256 = tree.seal(path)
    tasks = [one.tasks for one in found]
    return Artifact(
        path=path,
        bytes=size,
        sha256=sha256,
        verdict=_verdict(found, job.closed),
        events=sum(one.count for one in tasks),
        first_unix_ns=min((one.first_unix_ns for one in tasks if one.first_unix_ns), default=0),
        last_unix_ns=max(one.last_unix_ns for one in tasks),
    )


def inspect(path: Path, *, wanted: Iterable[str] = ()) -> Found:
    """
    What the folder at ``path`` holds, and which of the spans ``wanted`` have a mark in it. Changes nothing.

    Databases are read before tables and timelines, which say the same with less precision.

    Raises:
        FileNotFoundError: it is not there, or empty.
        InvalidArtifact: it is no folder of Ascend's.
    """
    folder = ascend_folder.read(path)
    tasks, broken = Tasks(), ascend_folder.lacks(folder)
    ids = frozenset(span.lower() for span in wanted)
    for database in folder.databases:
        try:
            from_database(database, tasks, wanted=ids)
        except InvalidArtifact as error:
            broken.append(str(error))
    if not folder.databases:
        for table in folder.tables:
            try:
                from_table(table, tasks)
            except InvalidArtifact as error:
                broken.append(str(error))
        survey = Survey(ids)
        for trace in folder.traces:
            try:
                with open_raw(trace) as stream:
                    for piece in Pieces(stream):
                        survey.add(piece)
            except InvalidArtifact as error:
                broken.append(f"{trace.name}: {error}")
        tasks.marks |= survey.marks
    return Found(folder=folder, tasks=tasks, broken=broken)


def _verdict(found: Sequence[Found], closed: Closed) -> Verdict:
    if broken := [words for one in found for words in one.broken]:
        return Verdict(complete=False, reason=Incomplete.TRUNCATED, detail="; ".join(broken))
    verdict = judge([_recording(one, closed) for one in found], closed)
    if verdict.complete and not all(one.folder.outputs for one in found):
        return Verdict(complete=None, detail=RAW)
    return verdict


def _recording(found: Found, closed: Closed) -> Recording:
    """
    What is judged: of raw data no more than its session.
    """
    marks = closed.mirrored if found.folder.outputs else []
    return Recording(
        path=found.folder.path,
        bytes=0,
        sha256="",
        events=found.tasks.count,
        session_unix_ns=found.session_unix_ns,
        expected=len(marks),
        missing=[span for span in marks if span.lower() not in found.tasks.marks],
        launched=_launched(found.tasks.launches),
    )


def _launched(launches: bytearray) -> Launched:
    count = len(launches)
    missing = launches.count(0)
    if missing in {0, count}:
        return Launched(count=count, missing=missing)
    where = ""
    if launches[:missing].count(0) >= NEAR * missing:
        where = "head"
    elif launches[-missing:].count(0) >= NEAR * missing:
        where = "tail"
    return Launched(count=count, missing=missing, where=where)
