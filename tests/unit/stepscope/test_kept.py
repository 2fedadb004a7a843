"""
What waits for a sidecar: how much of it, in which order, and what is said of the rest.
"""

import pytest

from stepscope import kept, wire
from stepscope.complaints import Complaints
from stepscope.kept import Kept, encoded


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """
    Room for some ten tables of one sample.
    """
    monkeypatch.setattr(kept, "complaints", Complaints())
    monkeypatch.setattr(kept, "MAX_TABLE_BYTES", 10 * len(encoded(table(0))))
    return Kept()


def table(number: int) -> wire.Samples:
    """
    The sample of a mini-batch.
    """
    return wire.Samples(step=1, mini_batch=number, param_version=0, rows=[["a", 0, 0, None, None]])


def missed(step: int) -> wire.Missed:
    """
    A window that nobody could be asked for.
    """
    return wire.Missed(step=step, param_version=0, reason="sidecar_lost", unix_ns=1)


def add(waiting: Kept, *messages: wire.Message) -> None:
    """
    Keep all of ``messages``.
    """
    for message in messages:
        waiting.add(message, encoded(message))


def taken(waiting: Kept) -> list[wire.Message]:
    """
    All that waits.
    """
    lines = []
    while waiting:
        lines += waiting.take().splitlines()
    return [wire.decode(line) for line in lines]


def test_tables_are_bounded_by_their_bytes(waiting: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """
    What does not fit is counted, and complained of once; room that has become free is used again.
    """
    add(waiting, *(table(number % 10) for number in range(13)))

    assert "3 sample tables" == waiting.lost()
    assert 10 == len(taken(waiting))
    assert 1 == len(caplog.records)
    add(waiting, table(5))
    assert ([table(5)], "") == (taken(waiting), waiting.lost())


def test_tables_never_crowd_out_what_became_of_windows(waiting: Kept) -> None:
    """
    That is small, comes first, and in its order.
    """
    ended = wire.Ended(window="w", state="failed", reason="start_error")
    add(waiting, missed(1), *(table(0) for _ in range(2000)), ended, missed(2))

    assert [missed(1), ended, missed(2), table(0)] == taken(waiting)[:4]


def test_messages_of_any_size_are_bounded(waiting: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The oldest go; the newest always fits.
    """
    monkeypatch.setattr(kept, "MAX_TOLD_BYTES", 3 * len(encoded(missed(1))))
    add(waiting, *(missed(step) for step in range(5)))

    assert "2 messages" == waiting.lost()
    assert [missed(2), missed(3), missed(4)] == taken(waiting)


def test_dropped_spans_are_one_message(waiting: Kept) -> None:
    """
    They are told of every second, for as long as there is no sidecar.
    """
    add(waiting, missed(1), *(wire.Dropped(spans={"buffer_full": 2}) for _ in range(2000)))

    assert [missed(1), wire.Dropped(spans={"buffer_full": 4000})] == taken(waiting)


def test_a_message_that_no_sidecar_takes_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It would end the connection there.
    """
    monkeypatch.setattr(kept, "complaints", Complaints())
    monkeypatch.setattr(wire, "MAX_LINE", 50)

    assert b"" == encoded(table(0))
    assert ["Samples of 90 bytes is more than a sidecar takes; it is left out"] == [
        record.getMessage() for record in caplog.records
    ]
