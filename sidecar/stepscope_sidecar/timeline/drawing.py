"""
Writes a timeline in Chrome's trace-event format, as it comes: nothing but the numbers of tracks is kept.

Owns the format. Times are microseconds since the base with three decimals, made of whole nanoseconds as text, so that
not one is rounded. Processes and tracks are numbered here: viewers take equal thread numbers for the same thread,
whatever the process.
"""

import contextlib
import gzip
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, cast

import orjson

from stepscope_sidecar.errors import MergeError

PACKED = ".gz"
"""How the name of a compressed file ends."""

GZIP_LEVEL = 3
"""As for recordings: the higher levels take twice the time and more for a tenth of the bytes."""

FIRST_TRACK = 1_000_000
"""Beyond all numbers of processes: a thread with the number of its process would be called its main thread."""

BUFFERED = 1024 * 1024
"""Characters that are written at once."""


class Track(NamedTuple):
    """
    A row of the timeline.
    """

    pid: int
    tid: int


class Drawing:
    """
    One file, in a ``with`` block: whole when the block ends, and not there when it fails.
    """

    def __init__(self, target: Path, *, base_ns: int, keys: Mapping[str, object]) -> None:
        """
        Begin a file at ``target`` whose times count from ``base_ns``; ``keys`` stand before the events.
        """
        self._target = target
        self._part = target.with_name(f".{target.name}.{os.getpid()}.part")
        self._base_ns = base_ns
        self._keys = keys
        self._texts: list[str] = []
        self._size = 0
        self._separator = ""
        self._flows = 0
        self._tracks = FIRST_TRACK
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "Drawing":
        """
        Open the file.

        Raises:
            MergeError: it cannot be written.
        """
        try:
            if self._target.exists() and not self._target.is_file():
                # The finished file takes the place of what has its name: of a device that would be lost.
                raise MergeError(f"cannot write {self._target}: it is not a file; name another file with -o")
            self._file = self._part.open("wb")
        except OSError as error:
            raise self._failed(error) from error
        packed = self._target.name.endswith(PACKED)
        self._out = (
            gzip.GzipFile("", "wb", compresslevel=GZIP_LEVEL, fileobj=self._file, mtime=0) if packed else self._file
        )
        keys = {"displayTimeUnit": "ms", "baseTimeNanoseconds": self._base_ns, **self._keys}
        self._put(orjson.dumps(keys).decode()[:-1] + ',"traceEvents":[')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """
        Finish the file, or remove it.
        """
        assert self._file is not None
        try:
            if error is None:
                self._put("\n]}\n")
                self._write()
                self._out.close()
                self._file.close()
                self._part.replace(self._target)
        except OSError as failed:
            raise self._failed(failed) from failed
        finally:
            # What the disk had no room for is still in the buffer: closing tries once more, and fails again.
            with contextlib.suppress(OSError):
                self._file.close()
            self._part.unlink(missing_ok=True)

    def process(self, pid: int, name: str) -> None:
        """
        Name a process; they are shown in the order of their numbers.
        """
        for key, told in (("process_name", {"name": name}), ("process_sort_index", {"sort_index": pid})):
            self._about(key, Track(pid, 0), told)

    def track(self, pid: int, name: str) -> Track:
        """
        A new row of a process, below those that it has.
        """
        self._tracks += 1
        track = Track(pid, self._tracks)
        for key, told in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": self._tracks})):
            self._about(key, track, told)
        return track

    def slice(self, track: Track, name: str, start_ns: int, end_ns: int, *, category: str, told: str = "{}") -> None:
        """
        Something that took time. ``name`` and ``told``, an object, are JSON.
        """
        start, length = self.micro(start_ns), micro(end_ns - start_ns)
        self.event(
            f'{{"ph":"X","cat":"{category}","name":{name},"pid":{track.pid},"tid":{track.tid},'
            f'"ts":{start},"dur":{length},"args":{told}}}'
        )

    def flow(self, name: str, source: Track, left_ns: int, target: Track, came_ns: int) -> None:
        """
        An arrow from what runs on a track at a moment to what runs on another.
        """
        self._flows += 1
        for phase, track, at in (('"s"', source, left_ns), ('"f","bp":"e"', target, came_ns)):
            self.event(
                f'{{"ph":{phase},"cat":"{name}","name":"{name}","id":{self._flows},'
                f'"pid":{track.pid},"tid":{track.tid},"ts":{self.micro(at)}}}'
            )

    def micro(self, unix_ns: int) -> str:
        """
        A moment in microseconds since the base.
        """
        return micro(unix_ns - self._base_ns)

    def event(self, text: str) -> None:
        """
        Put an event there, which is JSON.

        Raises:
            MergeError: it cannot be written.
        """
        self._put(f"{self._separator}\n{text}")
        self._separator = ","

    def _about(self, key: str, track: Track, told: Mapping[str, object]) -> None:
        text = orjson.dumps(told).decode()
        self.event(f'{{"ph":"M","name":"{key}","pid":{track.pid},"tid":{track.tid},"args":{text}}}')

    def _put(self, text: str) -> None:
        self._texts.append(text)
        self._size += len(text)
        if self._size > BUFFERED:
            self._write()

    def _write(self) -> None:
        try:
            cast("IO[bytes]", self._out).write("".join(self._texts).encode())
        except (OSError, zlib.error) as error:
            raise self._failed(error) from error
        self._texts, self._size = [], 0

    def _failed(self, error: Exception) -> MergeError:
        why = getattr(error, "strerror", None) or error
        return MergeError(f"cannot write {self._target}: {why}; name another file with -o")


def micro(nanoseconds: int) -> str:
    """
    Nanoseconds as microseconds, exactly.
    """
    sign = "-" if nanoseconds < 0 else ""
    return f"{sign}{abs(nanoseconds) // 1000}.{abs(nanoseconds) % 1000:03d}"
