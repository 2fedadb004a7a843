"""
What can still be read of a Chrome trace that is cut off or is no JSON: whole events, one after the other.

Owns the search for them. It is for files that ``artifacts.pieces`` refuses, and never refuses one itself: what it has
to leave out is counted.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from stepscope_sidecar.artifacts.mending import plain
from stepscope_sidecar.artifacts.parsing import loads
from stepscope_sidecar.artifacts.pieces import CHUNK, MAX_PIECE, is_packed
from stepscope_sidecar.traces import chrome

_BEGIN = re.compile(rb'^\s*\[|"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,(?=\s*\{)")
_END = re.compile(rb"\}\s*\]")
_KEY = re.compile(rb'^\s*"([^"\\]+)"\s*:\s*(.*?)\s*,?\s*$')

MARK = b"\xef\xbb\xbf"
"""Which some programs put before text."""

GZIP_CONTAINER = 31
"""zlib's window bits for its largest window in a gzip container."""


@dataclass(kw_only=True, slots=True)
class Losses:
    """
    What could not be read.
    """

    events: int = 0
    mended: int = 0
    """Events that were read after their names had been made plain."""
    cut_off: bool = False
    """The file, or its compressed form, ends before its end."""
    damaged: bool = False
    """Its compressed form is broken."""


class Salvage:
    """
    The events of one file, and the keys around them as far as they can be told.
    """

    def __init__(self, path: Path) -> None:
        self.losses = Losses()
        self.keys: dict[str, object] = {}
        self.found = False
        """Whether a list of events begins in the file."""
        self.bare = False
        """Whether it begins with that list."""
        self._path = path

    def pieces(self) -> Iterator[tuple[list[object], bytes]]:
        """
        Events, and the text they were made of.
        """
        buffer = b""
        for text in self._texts():
            buffer += text
            if not self.found:
                buffer = self._begin(buffer)
                continue
            places = list(_BETWEEN.finditer(buffer))
            if places:
                yield from self._read(buffer[: places[-1].start() + 1])
                buffer = buffer[places[-1].end() :]
            elif len(buffer) > MAX_PIECE:
                self.losses.events += 1
                buffer = b""
        if self.found:
            yield from self._last(buffer)

    def _texts(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            yield from self._unpacked(file) if is_packed(self._path) else iter(lambda: file.read(CHUNK), b"")
        # The last one may have been all of a small file.
        yield b""

    def _unpacked(self, file: IO[bytes]) -> Iterator[bytes]:
        inflate = zlib.decompressobj(GZIP_CONTAINER)
        while packed := inflate.unconsumed_tail or file.read(CHUNK):
            try:
                yield inflate.decompress(packed, CHUNK)
            except zlib.error:
                self.losses.damaged = True
                return
            if inflate.eof:
                file.seek(-len(inflate.unused_data), 1)
                inflate = zlib.decompressobj(GZIP_CONTAINER)
                if not file.peek(1):  # type: ignore[attr-defined]  # it is buffered
                    return
        self.losses.cut_off = True

    def _begin(self, buffer: bytes) -> bytes:
        found = _BEGIN.search(buffer)
        if found is None:
            return buffer[-MAX_PIECE:]
        self.found, self.bare = True, found[0].endswith(b"[") and b"traceEvents" not in found[0]
        try:
            # What is before the events is sound in most files that are cut off.
            self.keys.update(cast("dict[str, object]", loads(buffer[: found.end()].lstrip(MARK) + b"]}")))
        except (ValueError, TypeError):
            self._note(buffer[: found.start()])
        return buffer[found.end() :]

    def _last(self, buffer: bytes) -> Iterator[tuple[list[object], bytes]]:
        end = _END.search(buffer)
        if end is None:
            self.losses.cut_off = True
            # What follows the last brace at the margin of the events is the beginning of one.
            if buffer.strip():
                self.losses.events += 1
            return
        self._note(buffer[end.end() :])
        yield from self._read(buffer[: end.start() + 1])

    def _read(self, text: bytes) -> Iterator[tuple[list[object], bytes]]:
        """
        The events in ``text``, which is halved until what can't be parsed is a single one.
        """
        try:
            events = chrome.decode(b"[" + text + b"]")
        except ValueError:
            places = list(_BETWEEN.finditer(text))
            if places:
                middle = places[len(places) // 2]
                yield from self._read(text[: middle.start() + 1])
                yield from self._read(text[middle.end() :])
                return
            mended = b"".join(plain(line) for line in text.splitlines(keepends=True))
            if mended == text:
                self.losses.events += 1
                return
            self.losses.mended += 1
            yield from self._mended(mended)
            return
        yield events, text

    def _mended(self, text: bytes) -> Iterator[tuple[list[object], bytes]]:
        try:
            yield chrome.decode(b"[" + text + b"]"), text
        except ValueError:
            self.losses.mended -= 1
            self.losses.events += 1

    def _note(self, text: bytes) -> None:
        """
        Keep the sound keys in ``text`` that stand on a line of their own, as Kineto writes them; the last counts.
        """
        for line in text.splitlines():
            if found := _KEY.match(line):
                try:
                    self.keys[found[1].decode()] = loads(found[2])
                except ValueError:
                    continue
