"""
The gauges of windows, of the backlog and of the sidecar's own process.
"""

import asyncio
import logging
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.names import State
from stepscope_sidecar import gauges, schema
from stepscope_sidecar.backlog import Backlog
from stepscope_sidecar.errors import StoreSlowError
from stepscope_sidecar.health import Health
from stepscope_sidecar.inbox import FORWARDED, forwarded
from stepscope_sidecar.index import Indexer
from stepscope_sidecar.metrics import Gauge
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.store import Store
from stepscope_sidecar.windows import Window
from tests.unit.sidecar.bodies import ATTEMPT, batch
from tests.unit.sidecar.ledgers import READY, RECORDING
from tests.unit.sidecar.stored import WAIT, holds

SECOND = 1_000_000_000


def values(found: list[Gauge]) -> dict[str, float]:
    """
    The values by name, or by queue.
    """
    return {item.labels.get("queue", item.name): item.value for item in found}


def test_the_age_is_that_of_the_oldest_open_window() -> None:
    """
    By role, from when it began to record or, before that, was asked for; 0 where none is open.
    """
    windows = [
        replace(RECORDING, opened_unix_ns=5 * SECOND),
        replace(RECORDING, opened_unix_ns=8 * SECOND),
        replace(RECORDING, role="rollouter", opened_unix_ns=0, asked_unix_ns=9 * SECOND, state=State.OPENING),
        replace(READY, role="critic", opened_unix_ns=1 * SECOND),
    ]
    found = gauges.open_ages(windows, roles=("trainer", "critic"), unix_ns=10 * SECOND)

    assert {"trainer": 5.0, "critic": 0.0, "rollouter": 1.0} == found


def test_windows_that_are_open_have_their_process_and_age() -> None:
    """
    Oldest first; one whose profiler is about to start counts from when it was asked for.
    """
    windows = [
        replace(RECORDING, rank=1, opened_unix_ns=8 * SECOND),
        replace(RECORDING, rank=2, opened_unix_ns=0, asked_unix_ns=5 * SECOND, state=State.OPENING),
        replace(READY, opened_unix_ns=1 * SECOND),
    ]

    found = gauges.open_windows(windows, unix_ns=10 * SECOND)

    assert [(2, "opening", 5.0), (1, "recording", 2.0)] == [
        (item["rank"], item["state"], item["age_seconds"]) for item in found
    ]
    assert {RECORDING.pid} == {item["pid"] for item in found}


def test_the_skew_is_between_ranks_in_the_last_step_that_several_recorded() -> None:
    """
    A later step that one rank alone recorded says nothing, nor does what was recorded beside a process.
    """

    def of(rank: int, step: int, at: float, beside: str = "") -> Window:
        return replace(READY, rank=rank, step=step, opened_unix_ns=int(at * SECOND), beside=beside)

    windows = [of(0, 5, 1.0), of(1, 5, 9.0), of(0, 6, 20.0), of(1, 6, 21.5), of(2, 6, 99.0, "w"), of(0, 7, 30.0)]

    assert {"trainer": 1.5} == gauges.start_skews(windows)
    assert {} == gauges.start_skews(windows[:1])


def test_the_backlog_tells_how_much_waits_and_for_how_long(tmp_path: Path) -> None:
    """
    Unknown counts as 1, and what the upstream has taken waits no more.
    """
    path = tmp_path / schema.FILE
    store = Store.open(path, attempt=ATTEMPT, outbox=True, clock=lambda: 10 * SECOND)
    backlog = Backlog(store, unix_ns=lambda: 14 * SECOND)
    place = store.append(batch(3), 3).result(WAIT)

    assert 1 == backlog.pending()
    assert holds(lambda: not asyncio.run(backlog.look()) and not values(backlog.gauges())["index"])
    assert {
        "stepscope_spans_pending": 3.0,
        "stepscope_forward_lag_seconds": 4.0,
        "index": 0.0,
    } == values(backlog.gauges())

    store.submit(lambda connection: forwarded(connection, last=place, spans=3)).result(WAIT)
    asyncio.run(backlog.look())

    assert {"stepscope_spans_pending": 0.0, "stepscope_forward_lag_seconds": 0.0, "index": 0.0} == values(
        backlog.gauges()
    )
    with open_reader(path) as reader:
        assert 3.0 == reader.totals().value(FORWARDED)
    assert store.close(timeout=WAIT)


def test_a_look_before_received_spans_are_rows_is_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Reading them into rows comes after their commit and changes what waits, too.
    """
    read, committed, looked = Indexer.slice, threading.Event(), threading.Event()

    def late(indexer: Indexer, connection: sqlite3.Connection) -> bool:
        if committed.is_set():
            assert looked.wait(WAIT)
        return read(indexer, connection)

    monkeypatch.setattr(Indexer, "slice", late)
    store = Store.open(tmp_path / schema.FILE, attempt=ATTEMPT, outbox=True)
    store.watch(committed.set)
    backlog = Backlog(store)
    try:
        store.append(batch(3), 3).result(WAIT)
        asyncio.run(backlog.look())

        assert 3.0 == values(backlog.gauges())["index"]
    finally:
        looked.set()
    assert holds(lambda: not asyncio.run(backlog.look()) and not values(backlog.gauges())["index"])
    assert store.close(timeout=WAIT)


def test_a_look_that_failed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Until then what was received is not called forwarded.
    """
    store = Store.open(tmp_path / schema.FILE, attempt=ATTEMPT, outbox=True)
    watched: list[bool] = []
    store.watch(lambda: watched.append(True))
    told = store.append(batch(3), 3)
    told.add_done_callback(lambda _: watched.append(False))
    told.result(WAIT)
    backlog = Backlog(store)

    def slow(_: Path) -> None:
        raise StoreSlowError("busy")

    with monkeypatch.context() as busy:
        busy.setattr("stepscope_sidecar.backlog.open_reader", slow)
        asyncio.run(backlog.look())
        failed = backlog.pending()
    asyncio.run(backlog.look())

    assert (1, 3) == (failed, backlog.pending())
    assert [True, False] == watched[:2]
    assert store.close(timeout=WAIT)


def test_health_tells_of_this_process(tmp_path: Path) -> None:
    """
    Memory, CPU time, the store's files, queues; errors once there are any.
    """
    (tmp_path / "s.db").write_bytes(b"12345")
    (tmp_path / "s.db-wal").write_bytes(b"123")
    health = Health(store=tmp_path / "s.db", queues={"store": lambda: 7})
    before = values(health.gauges())
    logging.getLogger("stepscope_sidecar.test").error("no more ink")
    logging.getLogger("stepscope_sidecar.test").warning("little ink")
    after = values(health.gauges())
    health.close()
    logging.getLogger("stepscope_sidecar.test").error("no paper")

    assert 8.0 == before["stepscope_store_bytes"]
    assert 7.0 == before["store"]
    assert before["stepscope_sidecar_resident_memory_bytes"] > 1_000_000
    assert before["stepscope_sidecar_cpu_seconds_total"] > 0.0
    assert 0.0 == before["stepscope_sidecar_errors_total"]
    assert "stepscope_sidecar_last_error_timestamp_seconds" not in before
    assert (
        after["stepscope_sidecar_last_error_timestamp_seconds"] >= before["stepscope_sidecar_start_timestamp_seconds"]
    )
    assert 1.0 == after["stepscope_sidecar_errors_total"] == values(health.gauges())["stepscope_sidecar_errors_total"]
