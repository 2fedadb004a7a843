"""
The store's writer: transactions, full disks and queues, and its end.
"""

import sqlite3
import threading
from pathlib import Path

import pytest

from stepscope_sidecar import inbox, totals, writer
from stepscope_sidecar.errors import StoreBusyError, StoreClosedError, StoreError, StoreFullError
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.store import Store, write
from stepscope_sidecar.totals import Exemplar
from tests.unit.sidecar.bodies import ATTEMPT, batch, span
from tests.unit.sidecar.stored import WAIT, WINDOW, count


def test_a_failing_job_leaves_its_neighbours_alone(store: Store, path: Path) -> None:
    """
    Jobs of one commit have each their own savepoint; what one raises reaches its caller only.
    """
    release = threading.Event()
    store.submit(lambda _: release.wait(WAIT))

    def fail(connection: sqlite3.Connection) -> None:
        totals.add(connection, "lost", {}, 1)
        raise ValueError("mine")

    exemplar = Exemplar(trace_id="t", span_id="s", step=1)
    before = store.submit(lambda connection: totals.add(connection, "kept", {"a": "b"}, 1, exemplar))
    failing, broken = store.submit(fail), store.submit(lambda connection: connection.execute("nonsense"))
    after = store.submit(lambda connection: totals.add(connection, "kept", {"a": "b"}, 2))
    release.set()
    before.result(WAIT)
    after.result(WAIT)

    assert isinstance(failing.exception(WAIT), ValueError)
    assert isinstance(broken.exception(WAIT), StoreError)
    with open_reader(path) as reader:
        assert [("kept", 3.0)] == [(total.name, total.value) for total in reader.totals().values]


def test_several_things_change_in_one_transaction(store: Store, path: Path) -> None:
    """
    A window, its span and its count are written together or not at all.
    """

    def finish(connection: sqlite3.Connection) -> None:
        write(connection, WINDOW)
        inbox.append(connection, store.encode([span(1)]), spans=1, unix_ns=1)
        raise ValueError("half-way")

    assert isinstance(store.submit(finish).exception(WAIT), ValueError)
    with open_reader(path) as reader:
        assert [] == reader.windows()
        assert [] == reader.spans()


def test_a_full_disk_fails_the_future_and_passes(store: Store, path: Path) -> None:
    """
    Without space an append fails as StoreFullError, what was there stays, and with space it works again.
    """
    store.append(batch(10), 10).result(WAIT)
    store.submit(lambda connection: connection.execute("PRAGMA max_page_count=1").fetchone()).result(WAIT)
    large = batch(5000, first=100)
    full = store.append(large, 5000)

    assert isinstance(full.exception(WAIT), StoreFullError)
    with open_reader(path) as reader:
        assert 10 == len(reader.spans())
    store.submit(lambda connection: connection.execute("PRAGMA max_page_count=1000000").fetchone()).result(WAIT)
    store.append(large, 5000).result(WAIT)
    with open_reader(path) as reader:
        assert 5010 == len(reader.spans())


def test_a_full_queue_is_said_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Beyond the bytes that may wait in memory an append fails as StoreBusyError instead of waiting.
    """
    release = threading.Event()
    store.submit(lambda _: release.wait(WAIT))
    monkeypatch.setattr(writer, "QUEUED_BYTES", 1000)
    taken, refused = store.append(batch(2), 2), store.append(batch(10, first=10), 10)
    release.set()

    assert isinstance(refused.exception(WAIT), StoreBusyError)
    assert taken.result(WAIT) > 0


def test_closing_writes_what_waits(path: Path) -> None:
    """
    close() answers all that was handed over before, and refuses what comes after.
    """
    store = Store.open(path, attempt=ATTEMPT)
    futures = [store.append(batch(20, first=20 * number + 1), 20) for number in range(50)]

    assert store.close(timeout=WAIT)
    assert all(future.result(WAIT) for future in futures)
    assert isinstance(store.append(batch(1), 1).exception(WAIT), StoreClosedError)
    assert 1000 == count(path, "spans")
