"""
Cuts a Chrome trace of any size and JSON layout into a head, pieces of its event list, and a tail, all of them checked.

Owns the splitting and what counts as well-formed. What the events mean is left to the format's module. Memory is
bounded by the size of a piece, not of the file: a cut is guessed at what looks like the comma between two events,
and the guess is proved by parsing the piece. That proof is sound, because a piece begins at a true event boundary,
so it can only be valid JSON if it ends at one too; where guesses fail, the text is scanned token by token.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.artifacts.parsing import loads

CHUNK = 2 * 1024 * 1024
"""Bytes read at a time. Parsed events take about ten times their text; larger chunks were not faster (measured)."""

MAX_PIECE = 64 * 1024 * 1024
"""Bytes without an event boundary before the file is refused: an event with deep stacks takes about 100 kB."""

GUESSES = 3
"""Places tried as an event boundary before scanning: more only cost time in a file that is broken anyway."""

GZIP_MAGIC = b"\x1f\x8b"

_BETWEEN = re.compile(rb"\}\s*,(?=\s*\{)")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},"]', re.DOTALL)
_AFTER_KEY = re.compile(rb"\s*(:?)\s*(.?)", re.DOTALL)
_NOT_STRICT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?\bInfinity\b|\bNaN\b', re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """
    A run of whole events: their text without outer commas, strict JSON, and the events themselves.
    """

    text: bytes
    events: list[object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """
    What lies around the events, and the keys in it. ``head`` ends with the list's ``[``, ``tail`` begins after ``]``.
    """

    head: bytes
    tail: bytes
    keys: dict[str, object]

    @property
    def bare(self) -> bool:
        """
        Whether the file is a list of events with no object around it (Kineto of 2020, torch_npu).
        """
        return self.head == b"["


class Pieces:
    """
    The parts of one file, read front to back: ``head``, then iterate to the end, then ``frame``.
    """

    def __init__(
        self,
        stream: IO[bytes],
        *,
        chunk: int = CHUNK,
        parse: Callable[[bytes], list[object]] | None = None,
    ) -> None:
        """
        Read from ``stream``; ``parse`` makes the elements of a list of its text, or raises ValueError for no JSON. It
        has to take all that is JSON: nothing else makes elements that the reader knows.

        Raises:
            InvalidArtifact: it is empty, or no list of events begins in it.
        """
        self._stream = stream
        self._chunk = chunk
        self._parse = parse or (lambda text: cast("list[object]", loads(text)))
        self._at_end = False
        self._buffer = b""
        self._frame: Frame | None = None
        self.loose = False
        """Whether NaN or Infinity stood where JSON has numbers."""
        self.head = self._read_head()

    @property
    def frame(self) -> Frame:
        """
        The head and tail; known once all pieces have been read.
        """
        assert self._frame is not None, "read all pieces first"
        return self._frame

    def __iter__(self) -> Iterator[Piece]:
        """
        The pieces in order.

        Raises:
            InvalidArtifact: the file is truncated or is not JSON.
        """
        after_comma = False
        while self._frame is None:
            self._fill()
            for piece in self._cut():
                after_comma = True
                yield piece
            if self._at_end and self._frame is None:
                last = self._end(after_comma=after_comma)
                if last is not None:
                    yield last

    def _read_head(self) -> bytes:
        while True:
            self._fill()
            start = _skip_mark(self._buffer)
            if self._buffer[start : start + 1] == b"[":
                self._buffer = self._buffer[start + 1 :]
                return b"["
            if self._buffer[start : start + 1] not in {b"{", b""}:
                raise InvalidArtifact(f"not JSON: begins with {self._buffer[start : start + 12]!r}")
            end = _events_begin(self._buffer, start)
            if end:
                head, self._buffer = self._buffer[start:end], self._buffer[end:]
                return self._strict(head)
            if self._at_end:
                if start == len(self._buffer):
                    raise InvalidArtifact("the file is empty")
                _parse(_strict(self._buffer[start:]))
                raise InvalidArtifact("no traceEvents")
            if len(self._buffer) > MAX_PIECE:
                raise InvalidArtifact(f"no traceEvents within {MAX_PIECE} bytes")

    def _fill(self) -> None:
        try:
            # Reading as much again as was not enough keeps rescanning linear in the size of the file.
            data = self._stream.read(max(self._chunk, len(self._buffer)))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidArtifact(f"truncated or broken gzip: {error}") from error
        self._at_end = not data
        self._buffer += data

    def _cut(self) -> Iterator[Piece]:
        """
        The events that are whole in the buffer, but for the last ones.
        """
        for match in _last_places(self._buffer):
            text = self._buffer[: match.start() + 1]
            try:
                events = self._parse(b"[" + text + b"]")
            except ValueError:
                continue
            self._buffer = self._buffer[match.end() :]
            yield Piece(text=text, events=events)
            return
        if self._at_end:
            return
        cut, closed = _boundary(self._buffer)
        if cut and not closed:
            text, self._buffer = self._buffer[:cut], self._buffer[cut + 1 :]
            yield self._piece(text)
        elif len(self._buffer) > MAX_PIECE:
            what = "the text after the events" if closed else "an event"
            raise InvalidArtifact(f"{what} is larger than {MAX_PIECE} bytes, or a string in it is not closed")

    def _end(self, *, after_comma: bool) -> Piece | None:
        """
        The last events, and the frame.
        """
        cut, closed = _boundary(self._buffer)
        if not closed:
            raise InvalidArtifact("truncated: the list of events does not end")
        text, tail = self._buffer[:cut], self._buffer[cut + 1 :]
        self._buffer = b""
        piece = self._piece(text) if text.strip() else None
        if piece is None and after_comma:
            raise InvalidArtifact("a comma after the last event")
        self._frame = _frame(self.head, self._strict(tail))
        return piece

    def _piece(self, text: bytes) -> Piece:
        strict = self._strict(text)
        try:
            events = self._parse(b"[" + strict + b"]")
        except ValueError as error:
            raise InvalidArtifact(f"not JSON: {error}") from None
        return Piece(text=strict, events=events)

    def _strict(self, text: bytes) -> bytes:
        strict = _strict(text)
        self.loose = self.loose or strict != text
        return strict


def is_packed(path: Path) -> bool:
    """
    Whether the file at ``path`` is gzip, whatever its name says.
    """
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


def open_raw(path: Path) -> IO[bytes]:
    """
    The text of ``path``, unpacked if it is gzip.
    """
    return cast("IO[bytes]", gzip.open(path, "rb")) if is_packed(path) else path.open("rb")


def _skip_mark(text: bytes) -> int:
    start = 3 if text.startswith(b"\xef\xbb\xbf") else 0
    return start + len(text[start:]) - len(text[start:].lstrip(b" \t\r\n"))


def _events_begin(text: bytes, start: int) -> int:
    """
    The place after the ``[`` of the outermost object's key ``traceEvents``; 0 if it is not there yet.
    """
    depth = 0
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
        elif token == b'"':
            return 0
        elif depth == 1 and token != b"," and _is_events_key(token):
            after = _AFTER_KEY.match(text, match.end())
            if after is None or not after[1]:
                continue
            if after[2] == b"[":
                return after.end()
            if after[2]:
                raise InvalidArtifact("traceEvents is not a list")
    return 0


def _is_events_key(token: bytes) -> bool:
    if b"\\" not in token:
        return token == b'"traceEvents"'
    try:
        return loads(token) == "traceEvents"
    except ValueError:
        return False


def _last_places(text: bytes) -> list[re.Match[bytes]]:
    """
    The last few places that look like the comma between two events, best first.
    """
    for width in (4096, 65536, len(text)):
        places = list(_BETWEEN.finditer(text, max(0, len(text) - width)))
        if places or width >= len(text):
            return places[: -GUESSES - 1 : -1]
    return []


def _boundary(text: bytes) -> tuple[int, bool]:
    """
    Where the events in ``text`` can be cut: its last comma between events, or (closed) the ``]`` that ends them.
    """
    depth, comma = 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            if depth == 0:
                return match.start(), True
            depth -= 1
        elif token == b",":
            if depth == 0:
                comma = match.start()
        elif token == b'"':
            break
    return comma, False


def _frame(head: bytes, tail: bytes) -> Frame:
    if head == b"[":
        if tail.strip():
            raise InvalidArtifact(f"text after the end: {tail.strip()[:20]!r}")
        return Frame(head=head, tail=tail, keys={})
    keys = _parse(head + b"]" + tail)
    assert isinstance(keys, dict)
    if b"traceEvents" in tail and _events_begin(b"{" + tail, 0):
        raise InvalidArtifact("traceEvents twice")
    return Frame(head=head, tail=tail, keys=keys)


def _strict(text: bytes) -> bytes:
    """
    ``text`` with the bare words NaN and Infinity, which Kineto and Python write and no viewer reads, made ``null``.
    """
    if b"NaN" not in text and b"Infinity" not in text:
        return text
    return _NOT_STRICT.sub(lambda match: match[0] if match[0].startswith(b'"') else b"null", text)


def _parse(text: bytes) -> object:
    try:
        return loads(text)
    except ValueError as error:
        raise InvalidArtifact(f"not JSON: {error}") from None
