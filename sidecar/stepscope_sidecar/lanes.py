"""
What each process did in each step, as strips of a timeline: which kind of time passed when.

Reads spans' times, names and buckets alone, of the steps that are asked for. Steps that are over are read once and
kept, so that looking again every few seconds costs little. What a strip looks like is left to ``pages.timeline``.
"""

import sqlite3
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stepscope import names
from stepscope_sidecar.reader import Moment, Reader
from stepscope_sidecar.rows import SpanRow

SLOTS = 120
"""Parts of a strip; it is some 60 pixels wide on a page."""

SETTLED = 3
"""A step so far behind the newest is rarely added to: the processes' clocks of steps differ by one or two."""

KEPT = 500
"""Steps whose strips are kept: about 5 kB each, and a person looks at the last ones."""

SECONDS = 5.0
"""That reading may take; a page that would take longer says so."""

PAINTED = (names.Bucket.IDLE, names.Bucket.OVERHEAD, names.Bucket.WASTED, names.Bucket.PRODUCTIVE)
"""In this order: where kinds of time overlap, as requests side by side do, the last one shows."""

QUERY = f"""
SELECT role, rank, name, start_unix_ns AS start, end_unix_ns AS end, json_extract(attributes, '$."{names.BUCKET}"')
FROM spans WHERE step = ? AND role IS NOT NULL AND rank IS NOT NULL
"""  # noqa: S608 - our own names

Key = tuple[str, int]
"""Role and rank."""

Part = tuple[str, int, str, int, int, object]
"""Role, rank, name, start, end and bucket of a span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """
    One process in one step.
    """

    seconds: float
    """From entering the step to its boundary; of a step that goes on, of what has been received."""
    over: bool
    """Whether the process has left the step."""
    painted: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """By kind of time: from which slot to which."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Seconds in which at least one span of the kind was going on."""


class Lanes:
    """
    The strips of one attempt. May be used by several threads.
    """

    def __init__(self) -> None:
        """
        Nothing has been read yet.
        """
        self._kept: OrderedDict[int, dict[Key, Strip]] = OrderedDict()
        self._lock = threading.Lock()
        self._seen = 0

    def read(self, reader: Reader, steps: Sequence[int], *, newest: int) -> dict[int, dict[Key, Strip]]:
        """
        The strips of ``steps``, by process; ``newest`` is the run's newest step.

        Raises:
            StoreError: the store cannot be read, or not in time.
        """
        with reader.moment(seconds=SECONDS) as moment:
            with self._lock:
                seen = self._drop_changed(moment)
                found = {step: self._kept[step] for step in steps if step in self._kept}
            wanted = [step for step in steps if step not in found]
            unread = _by_step(moment.unread(), frozenset(wanted)) if wanted else {}
            for step in wanted:
                found[step] = _strips([*_stored(moment, step), *unread.get(step, [])])
        with self._lock:
            for step in wanted:
                # Another reader may have seen more meanwhile; what was not in the tables yet will be seen then.
                if step <= newest - SETTLED and step not in unread and seen == self._seen:
                    self._kept[step] = found[step]
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    def _drop_changed(self, moment: Moment) -> int:
        """
        Forget the steps of which there are more spans now: those of a process may come long after another's.

        The last span that was looked at.
        """
        (last,) = moment.connection.execute("SELECT coalesce(max(id), 0) FROM spans").fetchone()
        query = "SELECT DISTINCT step FROM spans WHERE id > ? AND id <= ?"
        for (step,) in moment.connection.execute(query, (self._seen, last)) if self._kept else ():
            self._kept.pop(step, None)
        self._seen = max(self._seen, last)
        return int(last)


def _stored(moment: Moment, step: int) -> Iterator[Part]:
    rows: Iterable[sqlite3.Row] = moment.connection.execute(QUERY, (step,))
    return (tuple(row) for row in rows)


def _by_step(rows: Iterable[SpanRow], wanted: frozenset[int]) -> dict[int, list[Part]]:
    found: dict[int, list[Part]] = defaultdict(list)
    for row in rows:
        if row.step in wanted and row.role is not None and row.rank is not None:
            bucket = row.attributes.get(names.BUCKET)
            found[row.step].append((row.role, row.rank, row.name, row.start_unix_ns, row.end_unix_ns, bucket))
    return found


def _strips(parts: Iterable[Part]) -> dict[Key, Strip]:
    whole: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    inside: dict[Key, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for role, rank, name, start, end, bucket in parts:
        if name == names.RL_STEP_PROCESS:
            whole[role, rank].append((start, end))
        elif bucket in PAINTED and end > start:
            inside[role, rank][str(bucket)].append((start, end))
    return {key: _strip(whole.get(key, []), inside.get(key, {})) for key in sorted({*whole, *inside})}


def _strip(whole: Sequence[tuple[int, int]], inside: Mapping[str, Sequence[tuple[int, int]]]) -> Strip:
    extent = whole or [one for parts in inside.values() for one in parts]
    begin, end = min(start for start, _ in extent), max(end for _, end in extent)
    length = max(end - begin, 1)
    slots = [""] * SLOTS
    spent = {}
    for bucket in PAINTED:
        taken = 0
        for start, stop in _union(inside.get(bucket, ()), begin, end):
            taken += stop - start
            # To the nearest, so that what is shorter than half a slot does not paint over its neighbours.
            for slot in range(round((start - begin) * SLOTS / length), round((stop - begin) * SLOTS / length)):
                slots[slot] = bucket.value
        if taken:
            spent[bucket.value] = taken / 1e9
    return Strip(seconds=(end - begin) / 1e9, over=bool(whole), painted=_runs(slots), spent=spent)


def _union(parts: Iterable[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """
    When at least one of ``parts`` was going on between ``begin`` and ``end``.
    """
    since, until = begin, begin
    for start, stop in sorted(parts):
        if start > until:
            if until > since:
                yield since, until
            since = min(start, end)
        until = min(max(until, stop), end)
    if until > since:
        yield since, until


def _runs(slots: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    since = 0
    for slot in range(1, len(slots) + 1):
        if slot == len(slots) or slots[slot] != slots[since]:
            if slots[since]:
                found.setdefault(slots[since], []).append((since, slot))
            since = slot
    return found
