"""
Opens SQLite databases that profilers have written, so that nothing in them is executed and nothing is left beside them.

Owns how they are opened: read-only and immutable, because a viewer may have left them in WAL mode.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from stepscope_sidecar.artifacts import InvalidArtifact

HEADER = 100
"""Bytes of a database's header."""

MAGIC = b"SQLite format 3\0"
"""How it begins."""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """
    The database at ``path``. Text that is no UTF-8 is replaced.

    Raises:
        InvalidArtifact: it is none or is cut off, or what is done with it fails because of what is in it.
    """
    whole(path)
    try:
        uri = f"file:{quote(str(path))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = lambda data: data.decode(errors="replace")
            yield connection
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        raise InvalidArtifact(f"{path.name}: {error}") from error


def tables(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """
    The tables and their columns; a view would be somebody's program, and is left out.
    """
    names = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {
        name: frozenset(str(one) for (one,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,)))
        for name in names
    }


def whole(path: Path) -> None:
    """
    Refuse a database that ends before its last page; what lies in pages that no query reads would not be missed.
    """
    with path.open("rb") as file:
        head = file.read(HEADER)
    page = int.from_bytes(head[16:18], "big")
    # 1 stands for the largest size, which two bytes cannot hold.
    size = (65536 if page == 1 else page) * int.from_bytes(head[28:32], "big")
    if len(head) < HEADER or path.stat().st_size < size:
        raise InvalidArtifact(f"{path.name} is cut off")
