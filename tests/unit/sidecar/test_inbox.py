"""
What waits in the inbox is known at once and exactly, whatever was received, forwarded and given up.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from stepscope_sidecar import inbox, schema

Look = Callable[[sqlite3.Connection], int]

LOOKS: tuple[Look, ...] = (inbox.unread, inbox.pending, inbox.waiting_bytes)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """
    The store at ``path``, without an indexer.
    """
    with closing(schema.open_for_writing(path)) as connection:
        yield connection


def receive(connection: sqlite3.Connection, *sizes: int) -> None:
    """
    Requests of so many bytes, and as many spans as the tenth of it.
    """
    for size in sizes:
        inbox.append(connection, b"x" * size, spans=size // 10, unix_ns=1)


def read(connection: sqlite3.Connection, *, until: int, spans: int = 0) -> None:
    """
    Have read everything before request ``until`` into rows, and so many spans of that.
    """
    connection.execute("UPDATE cursor SET inbox_id = ?, spans = ? WHERE name = 'index'", (until, spans))


def known(connection: sqlite3.Connection) -> list[int]:
    """
    Spans not read, spans not forwarded and bytes of these.
    """
    return [look(connection) for look in LOOKS]


def instructions(connection: sqlite3.Connection, look: Look) -> int:
    """
    How many steps SQLite takes for ``look``.
    """
    taken = 0

    def one() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.set_progress_handler(one, 1)
    try:
        look(connection)
    finally:
        connection.set_progress_handler(None, 0)
    return taken


def test_what_waits_is_exact_whatever_happens_to_it(tmp_path: Path) -> None:
    """
    Forwarded, refused, come round, given up or read in part, over restarts and when it has been empty in between.
    """
    path = tmp_path / "s.db"
    found: list[list[int]] = []
    with opened(path) as connection:
        found.append(known(connection))
        receive(connection, 10, 20, 300, 40, 50, 60)
        read(connection, until=3, spans=7)
        found.append(known(connection))
        inbox.forwarded(connection, last=1, spans=1)
        found.append(known(connection))
    with opened(path) as connection:
        receive(connection, 70)
        second, third = inbox.waiting(connection, parcels=2, limit=1000)
        inbox.set_aside(connection, second, status=400, message="", unix_ns=1, reason="refused")
        found.append(known(connection))
        inbox.pass_over(connection, [third])
        found.append(known(connection))
        lost = inbox.give_up(connection, limit=150)
        found.append(known(connection))
        read(connection, until=8)
        inbox.forwarded(connection, last=7, spans=13)
        found.append(known(connection))
        receive(connection, 80)
        found.append(known(connection))

    assert [
        [0, 0, 0],
        [38, 48, 480],
        [38, 47, 470],
        [45, 52, 520],
        [45, 22, 220],
        [45, 13, 130],
        [0, 0, 0],
        [8, 8, 80],
    ] == found
    assert 9 == lost


def test_what_waits_in_the_store_of_an_older_release_is_known_too(tmp_path: Path) -> None:
    """
    Also when that release has gone on writing to one of ours.
    """
    path = tmp_path / "s.db"
    insert = "INSERT INTO inbox (received_unix_ns, spans, body) VALUES (1, ?, ?)"
    with opened(path) as connection:
        for change in ("TRIGGER inbox_more", "TRIGGER inbox_less", "TABLE inbox_sums"):
            connection.execute(f"DROP {change}")
        for spans in (1, 2, 3):
            connection.execute(insert, (spans, b"x" * spans))
        inbox.forwarded(connection, last=1, spans=1)
    with opened(path) as connection:
        receive(connection, 40)
        ours = known(connection)
        connection.execute(insert, (5, b"xxxxx"))
        theirs = known(connection)

    assert [10, 9, 45] == ours
    assert [15, 14, 50] == theirs


def test_what_waits_is_not_counted_one_by_one(tmp_path: Path) -> None:
    """
    Asking takes as long for a thousand requests as for two: it is asked several times a second.
    """
    with opened(tmp_path / "s.db") as connection:
        receive(connection, 10, 20)
        few = [instructions(connection, look) for look in LOOKS]
        receive(connection, *[30] * 998)
        many = [instructions(connection, look) for look in LOOKS]

    assert few == many
