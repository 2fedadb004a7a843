"""
Makes the final file of a Kineto Chrome trace: checks it, adds what the profiler could not know, compresses it.

Owns what is added to a file. Leaves JSON layout to ``pieces``, what is read from the events to ``survey``, and the
process, its priority and its limits to ``finaliser``. One pass over the file, in memory of a few pieces; the output
depends on the input alone, so that doing it again after a crash gives the same bytes.
"""

import hashlib
import zlib
from pathlib import Path
from typing import IO

import orjson

from stepscope.wire import Closed
from stepscope_sidecar.artifacts import Artifact, InvalidArtifact, continued, tree
from stepscope_sidecar.artifacts.completeness import judge
from stepscope_sidecar.artifacts.mending import mend
from stepscope_sidecar.artifacts.pieces import Frame, Piece, Pieces, is_packed, open_raw
from stepscope_sidecar.artifacts.survey import Recording, Survey
from stepscope_sidecar.jobs import Job

PACKED = ".gz"
"""How the name of a final file ends."""

GZIP_LEVEL = 3
"""
Of zlib's levels on Kineto's layout (torch 2.13, level ``ops``, zlib 1.2.13): 1 to 3 all run at about 200 MB/s and pack
11.0, 11.2 and 11.4 times; 4 packs 12.6 times at 105 MB/s, 6 13.2 times at 87 MB/s, 9 14.5 times at 24 MB/s. A
recording is written once beside a training process and rarely read, so time on the CPU counts for more than a tenth
of its bytes.
"""

GZIP_CONTAINER = 31
"""zlib's window bits for its largest window in a gzip container; zlib writes no name and no time into the header."""


def make(job: Job) -> Artifact:
    """
    The final file of a recording by this package's torch profiler.
    """
    recording = finalise(job.folder, job.closed, pid=job.pid, world_size=job.world_size)
    return Artifact(
        path=recording.path,
        bytes=recording.bytes,
        sha256=recording.sha256,
        verdict=judge([recording], job.closed),
        events=recording.events,
        first_unix_ns=recording.first_unix_ns,
        last_unix_ns=recording.last_unix_ns,
    )


def finalise(folder: Path, closed: Closed, *, pid: int | None, world_size: int | None = None) -> Recording:
    """
    Make the final file in ``folder`` from the raw one that ``closed`` names, and remove the raw one.

    A file that its profiler has packed itself is checked and kept as it is. Doing it again, also after a crash at any
    point, gives the same file and the same answer.

    Args:
        folder: the window's folder.
        closed: its close record.
        pid: the profiled process as it knows itself, which is how Kineto names its tracks; None where another process
            wrote the file, which then gets neither spans nor the rank of the one that asked for it.
        world_size: processes of the role, for a ``distributedInfo`` that torch did not write.

    Raises:
        FileNotFoundError: there is neither a raw nor a final file.
        InvalidArtifact: what there is is broken; it is left as it is.
    """
    raw = tree.raw(folder, closed.artifact)
    if raw.is_dir():
        raise InvalidArtifact(f"{raw.name!r} is a folder, and this profiler writes a file")
    final = raw if raw.name.endswith(PACKED) else raw.with_name(raw.name + PACKED)
    if raw.exists() and not (raw == final and is_packed(raw)):
        partial, mended = (final.with_name(f"{final.name}.{kind}") for kind in ("partial", "mended"))
        try:
            try:
                recording = _rewrite(raw, partial, final, closed, pid=pid, world_size=world_size)
            except InvalidArtifact:
                if is_packed(raw) or not mend(raw, mended):
                    raise
                recording = _rewrite(mended, partial, final, closed, pid=pid, world_size=world_size)
            partial.replace(final)
        finally:
            partial.unlink(missing_ok=True)
            mended.unlink(missing_ok=True)
        if raw != final:
            raw.unlink()
        return recording
    return inspect(final, closed)


def inspect(path: Path, closed: Closed) -> Recording:
    """
    What the file at ``path`` holds, compared with what ``closed`` says was mirrored. Changes nothing.

    Raises:
        FileNotFoundError: it is not there.
        InvalidArtifact: it is broken.
    """
    survey = Survey(closed.mirrored)
    with open_raw(path) as stream:
        pieces = Pieces(stream)
        for piece in pieces:
            survey.add(piece)
    size, digest = tree.measure(path)
    return survey.recording(path, closed, pieces.frame.keys, size=size, sha256=digest)


def _rewrite(
    raw: Path, partial: Path, final: Path, closed: Closed, *, pid: int | None, world_size: int | None
) -> Recording:
    """
    Write the checked, completed and compressed form of ``raw`` to ``partial``, which will become ``final``.
    """
    survey = Survey([*closed.mirrored, *(span.span_id for span in closed.continued)])
    with open_raw(raw) as stream, partial.open("wb") as file:
        out = _Packed(file)
        pieces = Pieces(stream)
        # A list of events has no room for metadata, so it becomes the object that Kineto writes today.
        out.write(b'{"traceEvents": [\n' if pieces.head == b"[" else pieces.head)
        separator = b""
        for piece in pieces:
            out.write(separator + piece.text)
            survey.add(piece)
            separator = b","
        frame = pieces.frame
        base = survey.base(frame.keys)
        for event in (
            [] if base is None or pid is None else continued.events(closed, pid=pid, base=base, seen=survey.marks)
        ):
            out.write(separator + b"\n  " + event)
            survey.add(Piece(text=event, events=[orjson.loads(event)]))
            separator = b","
        added = _added(frame.keys, closed, ours=pid is not None, world_size=world_size)
        out.write(b"\n]" + _members(frame, added) + b"\n}\n")
        out.close()
        keys = {"traceEvents": [], **frame.keys, **added}
        return survey.recording(final, closed, keys, size=out.size, sha256=out.sha256)


class _Packed:
    """
    A gzip stream whose bytes depend on nothing but what is written; it counts and hashes them on the way.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.size = 0
        self._digest = hashlib.sha256()
        self._file = file
        self._deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_CONTAINER)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        self._put(self._deflate.compress(data))

    def close(self) -> None:
        self._put(self._deflate.flush())

    def _put(self, packed: bytes) -> None:
        self.size += len(packed)
        self._digest.update(packed)
        self._file.write(packed)


def _added(keys: dict[str, object], closed: Closed, *, ours: bool, world_size: int | None) -> dict[str, object]:
    """
    The metadata that is not in the file yet.
    """
    members: dict[str, object] = {key: value for key, value in closed.metadata.items() if key != "distributedInfo"}
    if ours and (distributed := _distributed(closed, world_size=world_size)):
        members["distributedInfo"] = distributed
    return {key: value for key, value in members.items() if key not in keys}


def _members(frame: Frame, added: dict[str, object]) -> bytes:
    """
    What follows the list of events in the file's object: the tail without its closing brace, and what is added.
    """
    tail = b"" if frame.bare else frame.tail.rstrip()[:-1].rstrip()
    return tail + b"".join(b",\n  " + orjson.dumps(key) + b": " + orjson.dumps(value) for key, value in added.items())


def _distributed(closed: Closed, *, world_size: int | None) -> dict[str, object] | None:
    try:
        told = orjson.loads(closed.metadata.get("distributedInfo", ""))
    except orjson.JSONDecodeError:
        told = None
    if isinstance(told, dict):
        return told
    try:
        rank = int(closed.metadata["stepscope.rank"])
    except (KeyError, ValueError):
        return None
    return {"rank": rank} if world_size is None else {"rank": rank, "world_size": world_size}
