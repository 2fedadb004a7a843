"""
Fills the columns of a trace piece by piece, in little more memory than they will have.

Owns how a table grows: pieces of each column are kept as they come and put together at the end, column by column, so
that no more than one column is there twice.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stepscope_sidecar.traces.trace import NONE, Collective, Header, Kind, Points, Trace, Tracks, Unplaced

MAX_ID = 2**63 - 1
"""What an id's column can hold."""

COLUMNS: dict[str, type[np.signedinteger]] = {
    "start_ns": np.int64,
    "duration_ns": np.int64,
    "name": np.int32,
    "kind": np.int8,
    "track": np.int32,
    "correlation": np.int64,
    "external_id": np.int64,
}

Values = Sequence[int] | npt.NDArray[np.signedinteger]


class Columns:
    """
    A table that grows.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, list[npt.NDArray[np.signedinteger]]] = {column: [] for column in COLUMNS}
        self.names: dict[str, int] = {}
        """The place of each name; see ``name``."""
        self._tracks: dict[tuple[int, int, int, int, bool], int] = {}
        self._points: list[tuple[int, int, int]] = []
        self._unplaced: dict[Kind, list[int]] = {}
        self._collectives: dict[int, Collective] = {}
        self._known: dict[Collective, Collective] = {}
        self.length = 0
        self.first_ns: int | None = None
        """The first start, on the file's own clock."""

    def name(self, name: str) -> int:
        """
        The place of ``name``.
        """
        place = self.names.get(name)
        if place is None:
            place = self.names[name] = len(self.names)
        return place

    def host(self, pid: int, tid: int) -> int:
        """
        The place of a thread.
        """
        return self._tracks.setdefault((pid, tid, NONE, NONE, False), len(self._tracks))

    def device(self, device: int, stream: int, *, pid: int = NONE) -> int:
        """
        The place of a stream of a device.
        """
        return self._tracks.setdefault((pid, NONE, device, stream, True), len(self._tracks))

    def add(
        self,
        *,
        start_ns: Values,
        duration_ns: Values,
        name: Values,
        kind: Values,
        track: Values,
        correlation: Values,
        external_id: Values,
    ) -> None:
        """
        Take in some events; all columns are of one length.
        """
        columns = {
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "name": name,
            "kind": kind,
            "track": track,
            "correlation": correlation,
            "external_id": external_id,
        }
        for column, values in columns.items():
            self._pieces[column].append(np.asarray(values, dtype=COLUMNS[column]))
        if len(start_ns):
            first = int(self._pieces["start_ns"][-1].min())
            self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
        self.length += len(start_ns)

    def point(self, correlation: int, track: int, at_ns: int) -> None:
        """
        Take in a moment at which something was launched.
        """
        self._points.append((correlation, track, at_ns))

    def unplaced(self, kind: Kind, duration_ns: int) -> None:
        """
        Count an event that can't be in the table.
        """
        told = self._unplaced.setdefault(kind, [0, 0])
        told[0] += 1
        told[1] += duration_ns

    def lacking(self) -> tuple[Unplaced, ...]:
        """
        What was counted instead of taken in.
        """
        told = sorted(self._unplaced.items())
        return tuple(Unplaced(kind=kind, count=count, duration_ns=length) for kind, (count, length) in told)

    def collective(self, row: int, collective: Collective) -> None:
        """
        Remember what is known of the collective at ``row``; what is said of many is kept once.
        """
        self._collectives[row] = self._known.setdefault(collective, collective)

    def trace(self, header: Header, *, offset_ns: int = 0) -> Trace:
        """
        The whole; ``offset_ns`` is added to all times. The table is empty afterwards.
        """
        start = self._join("start_ns")
        start += offset_ns
        points = np.array(self._points, dtype=np.int64).reshape(-1, 3)
        tracks = np.array(list(self._tracks), dtype=np.int64).reshape(-1, 5)
        return Trace(
            header=header,
            names=tuple(self.names),
            tracks=Tracks(
                pid=tracks[:, 0],
                tid=tracks[:, 1],
                device=tracks[:, 2],
                stream=tracks[:, 3],
                on_device=tracks[:, 4].astype(np.bool_),
            ),
            start_ns=start,
            duration_ns=self._join("duration_ns"),
            name=self._join("name"),
            kind=self._join("kind"),
            track=self._join("track"),
            correlation=self._join("correlation"),
            external_id=self._join("external_id"),
            points=Points(
                correlation=points[:, 0], track=points[:, 1].astype(np.int32), at_ns=points[:, 2] + offset_ns
            ),
            collectives=self._collectives,
        )

    def _join(self, column: str) -> npt.NDArray[np.signedinteger]:
        pieces, self._pieces[column] = self._pieces[column], []
        if not pieces:
            return np.empty(0, dtype=COLUMNS[column])
        return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
