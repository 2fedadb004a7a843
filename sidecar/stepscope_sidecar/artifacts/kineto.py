"""
Makes the final file of a Kineto Chrome trace: checks it, adds what the profiler could not know, compresses it.

Owns what is read from the events and what is added to them. Leaves JSON layout to ``pieces`` and the process, its
priority and its limits to ``stepscope_sidecar.finalise``. One pass over the file, in memory of a few pieces; the
output depends on the input alone, so that doing it again after a crash gives the same bytes.
"""

import hashlib
import stat
import zlib
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import orjson

from stepscope.names import Incomplete
from stepscope.wire import Closed, ContinuedSpan
from stepscope_sidecar.artifacts.pieces import Frame, InvalidArtifact, Piece, Pieces, open_raw

FINAL_NAME = "recording.json.gz"
"""Name of the final file in a window's folder."""

GZIP_LEVEL = 3
"""
Of zlib's levels on Kineto's layout (torch 2.13, level ``ops``, zlib 1.2.13): 1 to 3 all run at about 200 MB/s and pack
11.0, 11.2 and 11.4 times; 4 packs 12.6 times at 105 MB/s, 6 13.2 times at 87 MB/s, 9 14.5 times at 24 MB/s. A
recording is written once beside a training process and rarely read, so time on the CPU counts for more than a tenth
of its bytes.
"""

GZIP_CONTAINER = 31
"""zlib's window bits for its largest window in a gzip container; zlib writes no name and no time into the header."""

ABSOLUTE_US = 1e14
"""Time stamps beyond this are microseconds since 1970 (1e14 is 1973); relative ones stay under 7.9e12."""

MAX_NAME = 512
"""Characters of a continued span's name, as on the profiler's timeline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """
    What a final file holds. Times are unix-epoch ns, 0 where the file does not say; ``missing`` are span ids.

    ``first_unix_ns`` and ``last_unix_ns`` are exact for time stamps relative to a base, and to 250 ns for the
    absolute ones of torch before 2.4, which a double cannot hold.
    """

    path: Path
    bytes: int
    sha256: str
    events: int
    first_unix_ns: int = 0
    last_unix_ns: int = 0
    expected: int = 0
    missing: list[str] = field(default_factory=list)
    continued: int = 0
    metadata: dict[str, object] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """
        The part of the mirrored spans that is not on the timeline, from 0 to 1.
        """
        return len(self.missing) / self.expected if self.expected else 0.0

    @property
    def incomplete(self) -> str:
        """
        What the recording lacks, or "".
        """
        return Incomplete.MARKERS_MISSING if self.missing else ""


def finalise(folder: Path, closed: Closed, *, pid: int, world_size: int | None = None) -> Recording:
    """
    Make the final file in ``folder`` from the raw one that ``closed`` names, and remove the raw one.

    Doing it again, also after a crash at any point, gives the same file and the same answer.

    Args:
        folder: the window's folder.
        closed: its close record.
        pid: the profiled process as it knows itself, which is how Kineto names its tracks.
        world_size: processes of the role, for a ``distributedInfo`` that torch did not write.

    Raises:
        FileNotFoundError: there is neither a raw nor a final file.
        InvalidArtifact: what there is is broken; it is left as it is.
    """
    final = folder / FINAL_NAME
    raw = _raw(folder, closed.artifact)
    if raw != final and raw.exists():
        partial = folder / f"{FINAL_NAME}.partial"
        try:
            recording = _rewrite(raw, partial, final, closed, pid=pid, world_size=world_size)
            partial.replace(final)
        finally:
            partial.unlink(missing_ok=True)
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
    survey = _Survey()
    with open_raw(path) as stream:
        pieces = Pieces(stream)
        for piece in pieces:
            survey.add(piece)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        size = file.tell()
    return survey.recording(path, closed, pieces.frame.keys, size=size, sha256=digest.hexdigest())


def marker(name: str, span_id: str) -> str:
    """
    How a span is called on the profiler's timeline: what Kineto keeps of its name, and its id.
    """
    kept = "".join(letter for letter in name if " " <= letter <= "~" and letter not in '"\\')
    return f"{kept[:MAX_NAME]} #{span_id.lower():0>16}"


class _Survey:
    """
    What is learned from the events, piece by piece.
    """

    def __init__(self) -> None:
        self.events = 0
        self.known = 0
        self.continued = 0
        self.first: float | None = None
        self.last: float | None = None
        self.marks: set[str] = set()

    def add(self, piece: Piece) -> None:
        """
        Take in the events of ``piece``; whatever is no Kineto event is counted and otherwise passed over.
        """
        self.events += len(piece.events)
        for event in piece.events:
            if not isinstance(event, dict) or "ph" not in event:
                continue
            self.known += 1
            if event["ph"] != "X":
                continue
            name = event.get("name")
            if isinstance(name, str) and name[-18:-16] == " #":
                arguments = event.get("args")
                if isinstance(arguments, dict) and "stepscope.continued" in arguments:
                    self.continued += 1
                    continue
                self.marks.add(name[-16:])
            # The event of category Trace spans the profiler's session, not anything that ran.
            if event.get("cat") != "Trace":
                self._time(event.get("ts"), event.get("dur"))

    def base(self, keys: dict[str, object]) -> int | None:
        """
        The unix-epoch ns that time stamps are counted from; None where that cannot be known.
        """
        base = keys.get("baseTimeNanoseconds")
        if isinstance(base, int):
            return base
        return 0 if self.first is not None and self.first > ABSOLUTE_US else None

    def recording(self, path: Path, closed: Closed, keys: dict[str, object], *, size: int, sha256: str) -> Recording:
        """
        The whole, once the file's outermost ``keys`` are known.

        Raises:
            InvalidArtifact: there are no events; an empty session of any profiler has some.
        """
        if not self.known:
            raise InvalidArtifact("no trace events" if self.events else "no events")
        base = self.base(keys)
        return Recording(
            path=path,
            bytes=size,
            sha256=sha256,
            events=self.events,
            first_unix_ns=_unix(base, self.first),
            last_unix_ns=_unix(base, self.last),
            expected=len(closed.mirrored),
            missing=[span for span in closed.mirrored if span.lower() not in self.marks],
            continued=self.continued,
            metadata=keys,
        )

    def _time(self, start: object, duration: object) -> None:
        try:
            begin = float(start)  # type: ignore[arg-type]  # torch_npu writes strings; what is no number is refused
            end = begin + float(duration or 0.0)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return
        if self.first is None or begin < self.first:
            self.first = begin
        if self.last is None or end > self.last:
            self.last = end


def _raw(folder: Path, name: str) -> Path:
    if not name or Path(name).name != name:
        raise InvalidArtifact(f"{name!r} is not the name of a file in the window's folder")
    raw = folder / name
    try:
        mode = raw.lstat().st_mode
    except FileNotFoundError:
        return raw
    if not stat.S_ISREG(mode):
        raise InvalidArtifact(f"{name!r} is not a plain file")
    return raw


def _rewrite(raw: Path, partial: Path, final: Path, closed: Closed, *, pid: int, world_size: int | None) -> Recording:
    """
    Write the checked, completed and compressed form of ``raw`` to ``partial``, which will become ``final``.
    """
    survey = _Survey()
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
        for event in [] if base is None else _continued(closed, pid=pid, base=base, seen=survey.marks):
            out.write(separator + b"\n  " + event)
            survey.add(Piece(text=event, events=[orjson.loads(event)]))
            separator = b","
        added = _added(frame.keys, closed, world_size=world_size)
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


def _continued(closed: Closed, *, pid: int, base: int, seen: Set[str]) -> Sequence[bytes]:
    """
    The events of spans that are not on the timeline, clipped to the window.

    A span that the close cut off may be reported as continued too; the profiler has drawn it up to there.
    """
    missing = [span for span in closed.continued if span.span_id.lower() not in seen]
    spans = sorted(missing, key=lambda span: (span.start_unix_ns, span.span_id))
    return [event for span in spans if (event := _event(span, closed, pid=pid, base=base))]


def _event(span: ContinuedSpan, closed: Closed, *, pid: int, base: int) -> bytes:
    open_still = span.end_unix_ns <= 0
    start = max(span.start_unix_ns, closed.opened_unix_ns)
    end = closed.closed_unix_ns if open_still else min(span.end_unix_ns, closed.closed_unix_ns)
    if end < start or start < base:
        return b""
    fields = {
        "ph": "X",
        "cat": "user_annotation",
        "name": marker(span.name, span.span_id),
        "pid": pid,
        "tid": span.thread,
        # Fragments, because three decimals are exact nanoseconds and a float's are not.
        "ts": orjson.Fragment(_microseconds(start - base)),
        "dur": orjson.Fragment(_microseconds(end - start)),
        "args": {
            "stepscope.continued": True,
            "stepscope.begun_before": span.start_unix_ns < closed.opened_unix_ns,
            "stepscope.ended_after": open_still or span.end_unix_ns > closed.closed_unix_ns,
        },
    }
    return orjson.dumps(fields)


def _added(keys: dict[str, object], closed: Closed, *, world_size: int | None) -> dict[str, object]:
    """
    The metadata that is not in the file yet.
    """
    members: dict[str, object] = {key: value for key, value in closed.metadata.items() if key != "distributedInfo"}
    if distributed := _distributed(closed, world_size=world_size):
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


def _microseconds(nanoseconds: int) -> bytes:
    return b"%d.%03d" % divmod(nanoseconds, 1000)


def _unix(base: int | None, microseconds: float | None) -> int:
    if base is None or microseconds is None:
        return 0
    whole = int(microseconds)
    return base + whole * 1000 + round((microseconds - whole) * 1000)
