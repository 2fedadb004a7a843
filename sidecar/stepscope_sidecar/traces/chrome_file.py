"""
Reads a file of Chrome events: strictly, and where it is broken what can be salvaged of it, with flags.

Owns which profiler the events are of, and what is said of a file that is no sound JSON.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.artifacts.parsing import paired
from stepscope_sidecar.artifacts.pieces import Frame, Pieces, open_raw
from stepscope_sidecar.traces import ascend_header, ascend_kinds, chrome, kineto_header
from stepscope_sidecar.traces.ascend_view import AscendView, is_ascend
from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.kineto import Kineto
from stepscope_sidecar.traces.salvage import Losses, Salvage
from stepscope_sidecar.traces.trace import Fault, Flag, Header, Trace


def read(path: Path, flags: Sequence[Flag]) -> Trace:
    """
    The events of the file at ``path``, of which ``flags`` is known already.
    """
    reader = _Reader()
    try:
        pieces = _strictly(path, reader)
    except InvalidArtifact as error:
        reader, salvage = _Reader(), Salvage(path)
        for events, text in salvage.pieces():
            reader.add(events, text, bare=salvage.bare)
        if not salvage.found:
            flag = _unfound(path, salvage.losses, str(error))
            return Columns().trace(Header(path=path, format="unknown", flags=(*flags, flag)))
        return reader.trace(salvage.keys, path, [*flags, *_lost(salvage.losses, str(error))])
    return reader.trace(pieces.frame.keys, path, [*flags, *_loose(pieces), *_twice(pieces.frame)])


def read_all(paths: Sequence[Path], header: Header) -> Trace:
    """
    The events of several files of Ascend's, which are the parts of one timeline.
    """
    view, flags = AscendView(), list(header.flags)
    for path in paths:
        try:
            with open_raw(path) as stream:
                for piece in Pieces(stream, parse=chrome.decode):
                    view.add(piece.events, piece.text)
        except InvalidArtifact as error:
            flags.append(Flag(fault=Fault.TRUNCATED, reason=f"{path.name}: {error}"))
    return _ascend(view, replace(header, flags=tuple(flags)))


class _Reader:
    """
    Takes events in and gives them to the reader that they are for, which shows in the first ones.
    """

    def __init__(self) -> None:
        self._reader: Kineto | AscendView | None = None

    def decode(self, text: bytes) -> list[object]:
        """
        The elements of a list; with the text of their times, if those that came before needed it.

        Raises:
            ValueError: it is no JSON.
        """
        exact = self._reader is not None and self._reader.exact
        return chrome.exactly(text) if exact else chrome.decode(text)

    def add(self, events: Sequence[object], text: bytes, *, bare: bool) -> None:
        """
        Take in some events; ``bare`` if the file is a list of them with nothing around it.
        """
        if self._reader is None:
            self._reader = AscendView() if bare and is_ascend(events) else Kineto()
        self._reader.add(events, text)

    def trace(self, keys: Mapping[str, object], path: Path, flags: Sequence[Flag]) -> Trace:
        """
        The whole.
        """
        if isinstance(self._reader, AscendView):
            return _ascend(self._reader, ascend_header.of_file(path, flags))
        reader = self._reader or Kineto()
        header = kineto_header.header(reader, keys, path, first_ns=reader.columns.first_ns, flags=flags)
        return reader.columns.trace(header, offset_ns=header.base_ns)


def _strictly(path: Path, reader: _Reader) -> Pieces:
    with open_raw(path) as stream:
        pieces = Pieces(stream, parse=reader.decode)
        for piece in pieces:
            reader.add(piece.events, piece.text, bare=pieces.head == b"[")
    return pieces


def _ascend(view: AscendView, header: Header) -> Trace:
    flags, guesses = list(header.flags), [*header.guesses, *ascend_kinds.guesses(view.task_types)]
    if view.faults[Fault.NOT_EVENTS]:
        reason = kineto_header.WORDS[Fault.NOT_EVENTS].format(view.faults[Fault.NOT_EVENTS])
        flags.append(Flag(fault=Fault.NOT_EVENTS, reason=reason))
    flags += kineto_header.lacking(view.columns)
    if not view.told_devices():
        guesses.append("the device is not told: process numbers are not made as in recent releases")
    era = header.era or "torch_npu or msprof, timeline"
    return view.trace(
        replace(header, era=era, flags=tuple(flags), guesses=tuple(guesses), unplaced=view.columns.lacking())
    )


def _unfound(path: Path, losses: Losses, error: str) -> Flag:
    if path.stat().st_size == 0 or "is empty" in error:
        return Flag(fault=Fault.EMPTY, reason="the file is empty")
    if losses.cut_off or losses.damaged:
        return Flag(fault=Fault.TRUNCATED, reason=error)
    fault = Fault.UNKNOWN_FORMAT if error.startswith("no traceEvents") else Fault.INVALID
    return Flag(fault=fault, reason=error)


def _lost(losses: Losses, error: str) -> list[Flag]:
    """
    What was wrong with a file of which events were salvaged.
    """
    found = []
    if losses.cut_off or losses.damaged:
        how = "its compressed form is broken" if losses.damaged else "it ends before its end"
        found.append(Flag(fault=Fault.TRUNCATED, reason=f"{how}; events up to there were read ({error})"))
    left_out = losses.events - losses.cut_off
    if not found or left_out > 0 or losses.mended:
        what = f"{max(left_out, 0)} events are left out and {losses.mended} names made plain"
        found.append(Flag(fault=Fault.INVALID, reason=f"{error}; {what}"))
    return found


def _loose(pieces: Pieces) -> list[Flag]:
    return [Flag(fault=Fault.NOT_FINITE, reason="NaN or Infinity where JSON has numbers")] if pieces.loose else []


def _twice(frame: Frame) -> list[Flag]:
    """
    A flag for keys that the file's outermost object has more than once; the last one counts.
    """
    if frame.bare:
        return []
    outermost: list[list[tuple[str, object]]] = []
    try:
        json.loads(paired(frame.head + b"]" + frame.tail), object_pairs_hook=outermost.append)
    except (ValueError, RecursionError):
        # A number of thousands of digits, or deep nesting, which the other parser let pass.
        return []
    keys = [key for key, _ in outermost[-1]]
    doubles = sorted({key for key in keys if keys.count(key) > 1})
    if not doubles:
        return []
    return [Flag(fault=Fault.DUPLICATE_KEYS, reason=f"twice in the outermost object: {', '.join(doubles)}")]
