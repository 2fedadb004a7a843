"""
Changes that the store could not take: what waits, what replaces what, and how it is tried again.
"""

import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from stepscope_sidecar import unsaved
from stepscope_sidecar.errors import StoreFullError
from stepscope_sidecar.store import Store
from stepscope_sidecar.unsaved import Unsaved


class Disk:
    """
    Stands in for a store: while ``full``, it takes nothing. Answers when told to.
    """

    def __init__(self) -> None:
        self.full = True
        self.done: list[str] = []
        self.attempts = 0
        self._asked: list[tuple[Callable[[Any], None], Future[None]]] = []

    def submit(self, work: Callable[[Any], None]) -> "Future[None]":
        future: Future[None] = Future()
        self._asked.append((work, future))
        return future

    def answer(self) -> int:
        """
        Answer all that was asked; how much that was.
        """
        asked, self._asked = self._asked, []
        for work, future in asked:
            if self.full:
                future.set_exception(StoreFullError("no space"))
            else:
                work(None)
                future.set_result(None)
        return len(asked)


@pytest.fixture
def disk() -> Disk:
    """
    A full one.
    """
    return Disk()


@pytest.fixture
def changes(disk: Disk) -> Unsaved:
    """
    Changes for it.
    """
    return Unsaved(disk)  # type: ignore[arg-type]


def noted(disk: Disk, text: str) -> Callable[[sqlite3.Connection], None]:
    """
    Work that leaves ``text`` on ``disk``.
    """
    return lambda _: disk.done.append(text)


def test_one_change_at_a_time_is_tried_while_there_is_no_space(disk: Disk, changes: Unsaved) -> None:
    """
    And none while that one is not answered; with space there are more and more.
    """
    for number in range(300):
        changes.put(noted(disk, str(number)))
    disk.answer()
    tried = []
    for _ in range(3):
        changes.retry()
        changes.retry()
        tried.append(disk.answer())
    disk.full = False
    while len(changes):
        changes.retry()
        tried.append(disk.answer())

    assert [1, 1, 1, 1, 16, 256, 27] == tried
    assert {str(number) for number in range(300)} == set(disk.done)


def test_the_latest_of_those_that_replace_each_other_is_made(disk: Disk, changes: Unsaved) -> None:
    """
    Whether both wait or the later one was taken before.
    """
    for text in ("old", "older than what comes", "new"):
        changes.put(noted(disk, text), over="process 7")
    disk.answer()
    waiting = len(changes)
    disk.full = False
    changes.retry()
    disk.answer()
    first = list(disk.done)
    disk.full = True
    changes.put(noted(disk, "late"), over="process 7")
    disk.answer()
    disk.full = False
    changes.put(noted(disk, "latest"), over="process 7")
    disk.answer()
    changes.retry()
    disk.answer()

    assert (1, ["new"]) == (waiting, first)
    assert ["new", "latest"] == disk.done
    assert not len(changes)


def test_what_is_only_added_waits_as_one_sum(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    By name and labels.
    """
    changes, real, disk = Unsaved(store), store.submit, Disk()
    monkeypatch.setattr(store, "submit", disk.submit)
    for amount in (1.0, 2.0, 4.0):
        changes.add("spent", {"role": "trainer"}, amount)
    changes.add("spent", {"role": "rollouter"}, 8.0)
    disk.answer()
    waiting = len(changes)
    monkeypatch.setattr(store, "submit", real)
    for _ in range(2):
        changes.retry()
        store.submit(lambda _: None).result(30)
    found = store.submit(
        lambda connection: [tuple(row) for row in connection.execute("SELECT labels, value FROM totals")]
    ).result(30)

    assert 2 == waiting
    assert {"trainer": 7.0, "rollouter": 8.0} == {
        "trainer" if "trainer" in labels else "rollouter": value for labels, value in found
    }


def test_beyond_a_limit_changes_are_given_up_and_that_is_said(
    disk: Disk, changes: Unsaved, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Those that may be spared at half of it; what is here already stays.
    """
    monkeypatch.setattr(unsaved, "LIMIT", 10)
    for number in range(3):
        changes.put(noted(disk, f"samples {number}"), size=2, spared=True)
    changes.put(noted(disk, "window"), over="window")
    with caplog.at_level(logging.ERROR):
        disk.answer()
        said = list(caplog.messages)
        changes.put(noted(disk, "large"), size=6)
        changes.put(noted(disk, "window again"), over="window")
        disk.answer()
    disk.full = False
    while len(changes):
        changes.retry()
        disk.answer()

    assert 1 == len(said)
    assert "10 rows wait" in said[0]
    assert "2 changes" in caplog.messages[-1]
    assert {"samples 0", "samples 1", "window again"} == set(disk.done)


def test_another_error_is_said_and_not_tried_again(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """
    What cannot be written at all would keep the sidecar from ending.
    """
    changes = Unsaved(store)

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("nonsense")

    with caplog.at_level(logging.ERROR):
        changes.put(broken)
        store.submit(lambda _: None).result(30)

    assert not len(changes)
    assert ["not kept: "] == [message[:10] for message in caplog.messages]
