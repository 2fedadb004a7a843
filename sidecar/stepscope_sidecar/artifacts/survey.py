"""
What is learned of a Chrome trace from its events, in one pass over them and in bounded memory.

Owns what is read from events. Whether what was found is all there should be is ``completeness``'s.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stepscope.wire import Closed
from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.artifacts.launches import CALLS, DEVICE, Launched, Launches
from stepscope_sidecar.artifacts.pieces import Piece

ABSOLUTE_US = 1e14
"""Time stamps beyond this are microseconds since 1970 (1e14 is 1973); relative ones stay under 7.9e12."""

WORK = CALLS | DEVICE

_STOPPED_EARLY = re.compile(r"stopped early\?\s*=\s*1\b")
"""What Kineto notes in its file when the buffers for device events were full, in builds that keep notes there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """
    What a final file holds. Times are unix-epoch ns, 0 where the file does not say; ``missing`` are span ids.

    Times are exact for time stamps relative to a base, and to 250 ns for the absolute ones of torch before 2.4, which a
    double cannot hold. ``session_unix_ns`` is from when to when the profiler says that it was on.
    """

    path: Path
    bytes: int
    sha256: str
    events: int
    first_unix_ns: int = 0
    last_unix_ns: int = 0
    session_unix_ns: tuple[int, int] = (0, 0)
    stopped_early: bool = False
    """The profiler had no room for more."""
    expected: int = 0
    missing: list[str] = field(default_factory=list)
    continued: int = 0
    launched: Launched = field(default_factory=Launched)
    metadata: dict[str, object] = field(default_factory=dict)


class Survey:
    """
    Takes events in piece by piece.
    """

    def __init__(self, wanted: Iterable[str] = ()) -> None:
        """
        Look for the marks of the spans ``wanted``; of others nothing is kept, there may be millions.
        """
        self.events = 0
        self.marks: set[str] = set()
        self._wanted = frozenset(span.lower() for span in wanted)
        self._known = 0
        self._continued = 0
        self._all = _Extent()
        self._session = _Extent()
        self._launches = Launches()

    def add(self, piece: Piece) -> None:
        """
        Take in the events of ``piece``; whatever is no Kineto event is counted and otherwise passed over.
        """
        self.events += len(piece.events)
        for event in piece.events:
            if not isinstance(event, dict) or "ph" not in event:
                continue
            self._known += 1
            if event["ph"] != "X":
                if event.get("name") == "Record Window End":
                    self._session.take(event.get("ts"), None)
                continue
            category, name = event.get("cat"), event.get("name")
            if category == "Trace":
                # It spans the profiler's session, not anything that ran.
                self._session.take(event.get("ts"), event.get("dur"))
                continue
            if isinstance(name, str) and name[-18:-16] == " #":
                arguments = event.get("args")
                if isinstance(arguments, dict) and "stepscope.continued" in arguments:
                    self._continued += 1
                    continue
                if name[-16:] in self._wanted:
                    self.marks.add(name[-16:])
            elif isinstance(category, str) and category in WORK:
                self._launches.add(event)
            self._all.take(event.get("ts"), event.get("dur"))

    def base(self, keys: dict[str, object]) -> int | None:
        """
        The unix-epoch ns that time stamps are counted from; None where that cannot be known.
        """
        base = keys.get("baseTimeNanoseconds")
        if isinstance(base, int):
            return base
        return 0 if self._all.first is not None and self._all.first > ABSOLUTE_US else None

    def recording(self, path: Path, closed: Closed, keys: dict[str, object], *, size: int, sha256: str) -> Recording:
        """
        The whole, once the file's outermost ``keys`` are known.

        Raises:
            InvalidArtifact: there are no events; an empty session of any profiler has some.
        """
        if not self._known:
            raise InvalidArtifact("no trace events" if self.events else "no events")
        base = self.base(keys)
        return Recording(
            path=path,
            bytes=size,
            sha256=sha256,
            events=self.events,
            first_unix_ns=_unix(base, self._all.first),
            last_unix_ns=_unix(base, self._all.last),
            session_unix_ns=(_unix(base, self._session.first), _unix(base, self._session.last)),
            stopped_early=stopped_early(keys),
            expected=len(closed.mirrored),
            missing=[span for span in closed.mirrored if span.lower() not in self.marks],
            continued=self._continued,
            launched=self._launches.found(),
            metadata=keys,
        )


class _Extent:
    """
    From the first start to the last end of some events, in the file's own microseconds.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self.last: float | None = None

    def take(self, start: object, duration: object) -> None:
        try:
            begin = float(start)  # type: ignore[arg-type]  # torch_npu writes strings; what is no number is refused
            end = begin + float(duration or 0.0)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return
        if self.first is None or begin < self.first:
            self.first = begin
        if self.last is None or end > self.last:
            self.last = end


def stopped_early(keys: dict[str, object]) -> bool:
    """
    Whether Kineto notes among the file's outermost ``keys`` that it had no room for more.
    """
    notes = [note for kind in ("INFO", "WARNING") for note in _list(keys.get(kind))]
    return any(isinstance(note, str) and _STOPPED_EARLY.search(note) for note in notes)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _unix(base: int | None, microseconds: float | None) -> int:
    if base is None or microseconds is None:
        return 0
    whole = int(microseconds)
    return base + whole * 1000 + round((microseconds - whole) * 1000)
