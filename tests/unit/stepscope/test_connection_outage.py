"""
The control socket without a sidecar, or before one that does not read: what is kept for it, and what comes of that.
"""

import socket
from pathlib import Path
from typing import Any

import pytest

from stepscope import connection as module
from stepscope import kept, outgoing, wire
from stepscope.complaints import Complaints
from stepscope.connection import Connection
from tests.unit.stepscope.connecting import MISSED, ask, register
from tests.unit.stepscope.fake_sidecar import PATIENCE, FakeSidecar, until


def test_without_a_sidecar_requests_fail_at_once_and_are_told_later(connection: Connection, tmp_path: Path) -> None:
    """
    What was missed reaches the sidecar that comes.
    """
    assert connection.request(ask, missed=MISSED) is None

    with FakeSidecar(tmp_path / "s", tmp_path) as fake:
        assert [MISSED] == fake.wait(wire.Missed)
        connection.close()


def test_kept_messages_are_bounded(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A run of any length without a sidecar keeps a thousand of them, and says how many it has not kept.
    """
    monkeypatch.setattr(module, "complaints", Complaints())
    for step in range(kept.MAX_TOLD + 50):
        connection.send(wire.Missed(step=step, param_version=0, reason="sidecar_lost", unix_ns=1), keep=True)

    with FakeSidecar(tmp_path / "s", tmp_path) as fake:
        told = fake.wait(wire.Missed, kept.MAX_TOLD)
        connection.close()

    assert (kept.MAX_TOLD, 50) == (len(told), told[0].step)
    assert ["50 messages left out" in record.getMessage() for record in caplog.records].count(True) == 1


def test_what_cannot_be_sent_keeps_nobody_from_the_sidecar(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It is left out, once and with a complaint, whether there is a sidecar or not; what else was kept is told.
    """
    monkeypatch.setattr(kept, "complaints", Complaints())
    impossible: Any = object()
    unsendable = wire.Samples(step=1, mini_batch=impossible, param_version=0, rows=[])
    connection.send(unsendable, keep=True)
    connection.send(MISSED, keep=True)

    with FakeSidecar(tmp_path / "s", tmp_path) as fake:
        fake.wait(wire.Missed)
        connection.send(unsendable, keep=True)
        connection.send(wire.StepClosed(step=1))
        fake.wait(wire.StepClosed)
        assert connection.up
        connection.close()

    assert ([wire.Register, wire.Missed, wire.StepClosed, wire.Bye], 1) == (
        [type(message) for message in fake.heard],
        fake.connections,
    )
    assert ["sending Samples" in record.getMessage() for record in caplog.records].count(True) == 1


def table(number: int) -> wire.Samples:
    """
    A mini-batch's samples, of some 100 KB.
    """
    rows: list[list[str | int | None]] = [["x" * 1000, 1, 1, None, None]] * 100
    return wire.Samples(step=1, mini_batch=number, param_version=0, rows=rows)


def test_sample_tables_of_an_outage_all_arrive(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Though they are more than may be under way at once, and one who leaves at once waits for them.
    """
    monkeypatch.setattr(outgoing, "MAX_OUTGOING", 1_000_000)
    for number in range(50):
        connection.send(table(number), keep=True)

    with FakeSidecar(tmp_path / "s", tmp_path) as fake:
        fake.wait(wire.Register)
        until(lambda: connection.up)
        connection.close(2 * PATIENCE)
        fake.wait(wire.Bye)

    assert list(range(50)) == [message.mini_batch for message in fake.all(wire.Samples)]
    assert isinstance(fake.heard[-1], wire.Bye)


def test_a_boundary_does_not_wait_behind_what_was_kept(tmp_path: Path) -> None:
    """
    What became of windows comes first; what is said now overtakes the tables that a slow sidecar has yet to read.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        connection = Connection(tmp_path / "s", register=register, heard=lambda m: None, deadline=PATIENCE)
        for number in range(50):
            connection.send(table(number), keep=True)
        connection.send(MISSED, keep=True)
        connection.start()
        peer, _ = server.accept()
        with peer, peer.makefile("rb") as lines:
            first = wire.decode(lines.readline())
            assert isinstance(first, wire.Register)
            answer = wire.Registered(id=first.id, selection="", revision=1, stopped=False, otlp_endpoint="")
            peer.sendall(wire.encode(answer))
            assert wire.decode(lines.readline()) == MISSED
            connection.send(wire.StepClosed(step=1))
            told = [type(wire.decode(lines.readline())) for _ in range(51)]
        connection.close()

    assert 50 == told.count(wire.Samples)
    assert told.index(wire.StepClosed) < 20


def test_a_request_that_has_no_room_is_missed_at_once(
    sidecar: FakeSidecar, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The peer has not read for long: nobody waits for its answer, and it is told once it reads.
    """
    monkeypatch.setattr(connection, "_deadline", PATIENCE)
    until(lambda: connection.up)
    with monkeypatch.context() as full:
        full.setattr(outgoing, "MAX_OUTGOING", 1)
        assert connection.request(ask, missed=MISSED) is None
        assert not connection.up
    connection.renew()

    assert [MISSED] == sidecar.wait(wire.Missed)
