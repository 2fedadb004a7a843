"""
The control socket: requests, deadlines, the breaker, reconnecting, and peers that misbehave.
"""

import socket
import threading
from pathlib import Path

import pytest

from stepscope import connection as module
from stepscope import outgoing, wire
from stepscope.complaints import Complaints
from stepscope.connection import Connection
from tests.unit.stepscope.connecting import DEADLINE, MISSED, ask, register
from tests.unit.stepscope.fake_sidecar import PATIENCE, FakeSidecar, until


def test_registers_and_is_answered(sidecar: FakeSidecar, connection: Connection, heard: list[wire.Message]) -> None:
    """
    The first message is the registration; its answer is handed on before a request may be sent.
    """
    assert connection.settled(PATIENCE)
    until(lambda: connection.up)

    assert [wire.Registered] == [type(message) for message in heard]
    assert isinstance(connection.request(ask, missed=MISSED), wire.Grant)


def test_a_denial_is_an_answer(sidecar: FakeSidecar, connection: Connection) -> None:
    """
    Nothing is missed when the sidecar says no.
    """
    sidecar.answers[wire.Open] = lambda m: [wire.Deny(id=m.id, reason="rank_not_selected")]  # type: ignore[union-attr]
    until(lambda: connection.up)

    answer = connection.request(ask, missed=MISSED)

    assert isinstance(answer, wire.Deny)
    assert [] == sidecar.all(wire.Missed)


def test_a_missed_deadline_opens_the_breaker(sidecar: FakeSidecar, connection: Connection) -> None:
    """
    The next request is not even sent.
    """
    sidecar.answers[wire.Open] = lambda m: []
    until(lambda: connection.up)
    connection._deadline = DEADLINE

    assert connection.request(ask, missed=MISSED) is None
    assert not connection.up
    assert connection.request(ask, missed=MISSED) is None
    assert 1 == len(sidecar.wait(wire.Open))


def test_a_late_grant_is_given_back_and_the_breaker_closes(sidecar: FakeSidecar, connection: Connection) -> None:
    """
    The window ends as expired; a registration in time shows that the sidecar is well again.
    """
    late = threading.Event()
    sidecar.answers[wire.Open] = lambda m: sidecar.granted(m) if late.wait(PATIENCE) else []
    until(lambda: connection.up)
    connection._deadline = DEADLINE

    assert connection.request(ask, missed=MISSED) is None
    connection._deadline = PATIENCE
    late.set()
    ended = sidecar.wait(wire.Ended)[0]
    until(lambda: connection.up)

    assert ("w1", "expired", "grant_too_late") == (ended.window, ended.state, ended.reason)
    assert [] == sidecar.all(wire.Missed)
    assert isinstance(connection.request(ask, missed=MISSED), wire.Grant)


def test_each_further_missed_deadline_doubles_the_wait(connection: Connection) -> None:
    """
    A peer that registers at once and never answers does not cost a deadline per step.
    """
    holds = []
    for connection._misses in (0, 1, 2, 3, 40):
        holds.append(connection._hold())
    connection._misses = 0

    assert [0.0, 0.01, 0.02, 0.04, module.MAX_HOLD] == holds


@pytest.mark.parametrize(
    "garbage", [b"what?\n", b"\xff\x00\n", b'{"kind": "nothing"}\n', b'{"kind":"grant","id":"x"}\n']
)
def test_garbage_ends_the_connection_and_the_wait(sidecar: FakeSidecar, connection: Connection, garbage: bytes) -> None:
    """
    A request is not kept waiting for its deadline by a peer that talks nonsense.
    """
    sidecar.answers[wire.Open] = lambda m: [garbage]
    until(lambda: connection.up)

    assert connection.request(ask, missed=MISSED) is None
    sidecar.wait(wire.Register, 2)


def test_a_message_without_end_is_given_up(
    sidecar: FakeSidecar, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Memory for what is read is bounded.
    """
    until(lambda: connection.up)
    monkeypatch.setattr(wire, "MAX_LINE", 1000)
    sidecar.say(b"x" * 2000)

    sidecar.wait(wire.Register, 2)


def test_a_peer_that_never_answers_the_registration_is_left(sidecar: FakeSidecar, connection: Connection) -> None:
    """
    It is tried again on a new connection; nobody waits for it meanwhile.
    """
    until(lambda: connection.up)
    connection._deadline = DEADLINE
    sidecar.answers[wire.Register] = lambda m: []
    sidecar.hang_up()

    sidecar.wait(wire.Register, 3)

    assert not connection.up
    assert connection.request(ask, missed=MISSED) is None


def test_a_peer_that_does_not_read_never_blocks_a_sender(tmp_path: Path) -> None:
    """
    What it does not take is held up to a bound and left out beyond it.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        connection = Connection(tmp_path / "s", register=register, heard=lambda m: None, deadline=PATIENCE)
        connection.start()
        peer, _ = server.accept()
        with peer:
            peer.recv(1 << 16)
            answer = wire.Registered(id=1, selection="", revision=1, stopped=False, otlp_endpoint="")
            peer.sendall(wire.encode(answer))
            until(lambda: connection.up)
            rows: list[list[str | int | None]] = [["x" * 1000, 1, 1, None, None]] * 3000
            sent = [connection.send(wire.Samples(step=1, mini_batch=0, param_version=0, rows=rows)) for _ in range(8)]

            assert {True, False} == set(sent)
            assert 0 < len(connection._outgoing) <= outgoing.MAX_OUTGOING
            connection._up = False
        connection.close()


def test_a_sidecar_that_comes_back_is_registered_with(connection: Connection, tmp_path: Path) -> None:
    """
    Killed and started again: a new registration, and requests are answered.
    """
    for _ in range(2):
        with FakeSidecar(tmp_path / "s", tmp_path) as fake:
            fake.wait(wire.Register)
            until(lambda: connection.up)
            assert isinstance(connection.request(ask, missed=MISSED), wire.Grant)
        until(lambda: not connection.up)


def test_a_sidecar_killed_while_asked_does_not_cost_the_deadline(sidecar: FakeSidecar, connection: Connection) -> None:
    """
    The end of the connection ends the wait, and what was missed is told to the next one.
    """

    def die(message: wire.Message) -> list[wire.Message]:
        sidecar.answers[wire.Open] = sidecar.granted
        sidecar.hang_up()
        return []

    sidecar.answers[wire.Open] = die
    until(lambda: connection.up)

    assert connection.request(ask, missed=MISSED) is None
    assert [MISSED] == sidecar.wait(wire.Missed)


def test_what_was_missed_is_told_at_once_also_by_who_comes_late(
    sidecar: FakeSidecar, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The thread that asked may lose its core until there is a sidecar again, which waits for nothing then.
    """

    def die(message: wire.Message) -> list[wire.Message]:
        sidecar.answers[wire.Open] = sidecar.granted
        sidecar.hang_up()
        return []

    class Slow(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            """
            Come back when there is a connection again.
            """
            done = super().wait(timeout)
            until(lambda: len(sidecar.all(wire.Register)) == 2 and connection.up)
            # The reader has nothing to write, and waits for what may be read.
            until(lambda: not connection._kept)
            return done

    sidecar.answers[wire.Open] = die
    until(lambda: connection.up)
    answer = module._Answer()
    answer.done = Slow()
    monkeypatch.setattr(module, "_Answer", lambda: answer)

    assert connection.request(ask, missed=MISSED) is None
    assert [MISSED] == sidecar.wait(wire.Missed)


def test_what_is_asked_after_registering_anew_is_asked_after_it(sidecar: FakeSidecar, connection: Connection) -> None:
    """
    A profiler that was added later is told on the same connection; nobody has to wait for the answer.
    """
    until(lambda: connection.up)

    connection.renew()

    assert isinstance(connection.request(ask, missed=MISSED), wire.Grant)
    assert [wire.Register, wire.Register, wire.Open] == [type(message) for message in sidecar.heard]
    assert 1 == sidecar.connections


def test_leaving_says_goodbye(sidecar: FakeSidecar, connection: Connection) -> None:
    """
    The last message is a goodbye, after everything that was sent before.
    """
    until(lambda: connection.up)
    connection.send(wire.StepClosed(step=1))

    connection.close()

    sidecar.wait(wire.Bye)
    assert [wire.StepClosed, wire.Bye] == [type(message) for message in sidecar.heard[-2:]]


def test_leaving_tells_one_that_had_stood_still_what_it_missed(
    sidecar: FakeSidecar, heard: list[wire.Message], tmp_path: Path
) -> None:
    """
    The breaker would stay open for longer than the process; a request without an answer is told all the same.
    """
    sidecar.answers[wire.Open] = lambda _: []
    made = Connection(tmp_path / "s", register=register, heard=heard.append, deadline=PATIENCE, retry=60.0)
    made.start()
    until(lambda: made.up)
    made._deadline = DEADLINE
    assert made.request(ask, missed=MISSED) is None
    assert made.request(ask, missed=MISSED) is None
    made._deadline = PATIENCE

    made.close(PATIENCE)

    sidecar.wait(wire.Bye)
    assert [wire.Missed, wire.Missed, wire.Bye] == [type(message) for message in sidecar.heard[-3:]]


def test_requests_of_many_threads_get_their_own_answers(sidecar: FakeSidecar, connection: Connection) -> None:
    """
    Answers are told apart by the id of the request.
    """
    until(lambda: connection.up)
    barrier = threading.Barrier(16)
    windows: list[str] = []

    def one() -> None:
        barrier.wait()
        answer = connection.request(ask, missed=MISSED)
        assert isinstance(answer, wire.Grant)
        windows.append(answer.window)

    connection._deadline = PATIENCE
    threads = [threading.Thread(target=one) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 16 == len(set(windows))


def test_one_warning_per_outage(
    connection: Connection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Not one per step and not one per attempt.
    """
    monkeypatch.setattr(module, "complaints", Complaints())
    connection.settled(0.0)
    for _ in range(20):
        connection.request(ask, missed=MISSED)

    assert 1 == len([record for record in caplog.records if "no sidecar at" in record.message])


def test_nobody_waits_for_a_sidecar_that_will_not_come(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Why it will not is the warning, and the wait of init() ends there.
    """
    monkeypatch.setattr(module, "complaints", Complaints())
    asked = threading.Event()

    def hopeless() -> str:
        asked.set()
        return "it ended at once: no room"

    came = connection.settled(float("inf"), hopeless=hopeless)

    assert asked.is_set()
    assert not came
    assert ["it ended at once: no room" in record.getMessage() for record in caplog.records] == [True]
