"""
Takes rows of a database into columns, some ten thousand at a time.

Owns the shape of the queries: a reader's ``SELECT`` gives, in this order, what ``Columns.add`` takes.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.trace import NONE, Ints, Kind

Names = Callable[[Sequence[int]], Iterable[tuple[int, str]]]
"""Of some ids, each with what it stands for."""

VARIABLES = 500
"""Ids that are asked for at once; old builds of SQLite take 999."""

BATCH = 20_000
"""Rows that are Python objects at one time: some 10 MB."""


def take(
    connection: sqlite3.Connection,
    query: str,
    columns: Columns,
    *,
    names: Names,
    track: Callable[[int, int], int],
    kind: Kind | Callable[[Ints], Ints],
) -> None:
    """
    Take in what ``query`` gives: start, end, name's id, two numbers of the track, correlation, and an id of the kind.

    Args:
        connection: to the database.
        query: its seven columns are whole numbers, or null for those that there are not.
        columns: take the events.
        names: what the ids of names stand for.
        track: the place of a track, by its two numbers.
        kind: that of all events, or what makes kinds of ids.
    """
    known: dict[int, int] = {}
    tracks: dict[tuple[int, int], int] = {}
    cursor = connection.execute(query)
    while batch := cursor.fetchmany(BATCH):
        told = np.array([[NONE if value is None else int(value) for value in row] for row in batch], dtype=np.int64)
        start, end = told[:, 0], told[:, 1]
        sound = (start != NONE) & (end >= start)
        kinds = kind(told[:, 6]) if callable(kind) else np.full(len(told), kind, dtype=np.int64)
        for row in np.flatnonzero(~sound).tolist():
            columns.unplaced(Kind(int(kinds[row])), 0)
        told, kinds = told[sound], kinds[sound]
        for one, text in names(sorted(set(told[:, 2].tolist()) - known.keys())):
            known[one] = columns.name(text)
        places = list(zip(told[:, 3].tolist(), told[:, 4].tolist(), strict=True))
        for pair in set(places) - tracks.keys():
            tracks[pair] = track(*pair)
        columns.add(
            start_ns=told[:, 0],
            duration_ns=told[:, 1] - told[:, 0],
            name=[known[one] for one in told[:, 2].tolist()],
            kind=kinds,
            track=[tracks[pair] for pair in places],
            correlation=told[:, 5],
            external_id=np.full(len(told), NONE, dtype=np.int64),
        )


def strings(connection: sqlite3.Connection, query: str) -> Names:
    """
    Names that ``query`` gives, of id and text, where its ``{ids}`` are those that are asked for.
    """

    def found(ids: Sequence[int]) -> Iterator[tuple[int, str]]:
        for place in range(0, len(ids), VARIABLES):
            some = ids[place : place + VARIABLES]
            told = connection.execute(query.format(ids=",".join("?" * len(some))), some)
            known = {int(one): str(text or "") for one, text in told}
            yield from ((one, known.get(one, "")) for one in some)

    return found
