"""
Spans that were received and are not in the tables: read once, and again when there are more.
"""

import sqlite3
from pathlib import Path

import pytest

from stepscope_sidecar import unindexed
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.spans import decode
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT, body, span
from tests.unit.sidecar.stored import WAIT


@pytest.fixture
def left(path: Path) -> "sqlite3.Connection":
    """
    A store whose sidecar left two requests unread.
    """
    assert Store.open(path, attempt=ATTEMPT).close(timeout=WAIT)
    connection = sqlite3.connect(path, isolation_level=None)
    for number in (1, 2):
        add(connection, number)
    return connection


def add(connection: sqlite3.Connection, number: int) -> None:
    """
    Have one more request.
    """
    connection.execute("INSERT INTO inbox (received_unix_ns, spans, body) VALUES (0, 1, ?)", (body(span(number)),))


@pytest.mark.parametrize(("kept", "reads"), [(unindexed.KEPT, (2, 3)), (1, (4, 3))], ids=["few", "many"])
def test_a_backlog_is_read_once_until_there_is_more(
    path: Path, left: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, kept: int, reads: tuple[int, int]
) -> None:
    """
    A page asks for one step after the other: decoding a long backlog each time took minutes. One too long is not kept.
    """
    decoded = []

    def counted(*arguments: object, **options: object) -> object:
        decoded.append(1)
        return decode(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(unindexed, "decode", counted)
    monkeypatch.setattr(unindexed, "KEPT", kept)
    found = []
    with open_reader(path) as reader:
        for _ in range(2):
            found.append(len(reader.spans()))
        first = len(decoded)
        add(left, 3)
        found.append(len(reader.spans()))
    left.close()

    assert [2, 2, 3] == found
    assert reads == (first, len(decoded) - first)
