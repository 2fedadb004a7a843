"""
The events of one piece of a file, on their way into the columns.

Owns how times become nanoseconds, in one go where doubles are exact and one by one where they are not, and that what
has no start or no length is counted instead.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from stepscope_sidecar.traces.chrome import Digits, exactly
from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.exact import all_ns, each_ns
from stepscope_sidecar.traces.trace import Collective, Fault, Kind

DIGITS = 17
"""Characters of microseconds with three decimals that a double holds: those of ``LIMIT_US``, and the point."""


@dataclass(kw_only=True, slots=True)
class Rows:
    """
    Lists of one length, with times as the file has them, and what else was seen in the piece.
    """

    start: list[object] = field(default_factory=list)
    length: list[object] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    track: list[int] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)
    external_id: list[int] = field(default_factory=list)
    collectives: dict[int, Collective] = field(default_factory=dict)
    session: list[tuple[object, object]] = field(default_factory=list)
    """Starts and lengths of what spans the profiler's own session."""
    faults: Counter[Fault] = field(default_factory=Counter)

    def put(self, columns: Columns) -> bool:
        """
        Put all into ``columns`` in one go; if not all of them have exact times, put none and say so.
        """
        start, length = all_ns(self.start), all_ns(self.length)
        if start is None or length is None or (len(length) and length.min() < 0):
            return False
        self._collect(columns, range(len(start)))
        columns.add(
            start_ns=start,
            duration_ns=length,
            name=self.name,
            kind=self.kind,
            track=self.track,
            correlation=self.correlation,
            external_id=self.external_id,
        )
        return True

    def put_each(self, columns: Columns) -> None:
        """
        Put those into ``columns`` that have a start and a length, and count the others there.
        """
        starts, lengths = each_ns(self.start), each_ns(self.length)
        kept: list[int] = []
        for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            if start is None or length is None or length < 0:
                columns.unplaced(Kind(self.kind[row]), length or 0)
            else:
                kept.append(row)
        self.faults[Fault.NUMBERS_AS_TEXT] += sum(type(value) is str for value in self.start)
        self._collect(columns, kept)
        columns.add(
            start_ns=[starts[row] or 0 for row in kept],
            duration_ns=[lengths[row] or 0 for row in kept],
            name=np.take(self.name, kept) if kept else [],
            kind=np.take(self.kind, kept) if kept else [],
            track=np.take(self.track, kept) if kept else [],
            correlation=np.take(self.correlation, kept) if kept else [],
            external_id=np.take(self.external_id, kept) if kept else [],
        )

    def beyond(self) -> bool:
        """
        Whether there are times with decimals that doubles do not hold.
        """
        return any(value.__class__ is Digits and len(value) > DIGITS for value in self.start)

    def _collect(self, columns: Columns, kept: "range | list[int]") -> None:
        if self.collectives:
            for place, row in enumerate(kept):
                if row in self.collectives:
                    columns.collective(columns.length + place, self.collectives[row])


def taken(events: Sequence[object], text: bytes, *, columns: Columns, rows: Callable[[Sequence[object]], Rows]) -> Rows:
    """
    The ``rows`` of ``events``, which are in ``columns`` now; made of ``text`` again where doubles cannot hold times.
    """
    made = rows(events)
    if not made.put(columns):
        if float in set(map(type, made.start)):
            # What could be decoded once can be so here, but that a stack may be at its end.
            with suppress(ValueError):
                made = rows(exactly(b"[" + text + b"]"))
        made.put_each(columns)
    return made
