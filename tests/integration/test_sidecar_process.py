"""
A real sidecar process, driven by scripted agents over its socket.
"""

import signal
import socket
from pathlib import Path

import pytest

from stepscope import wire
from stepscope_sidecar import standing
from stepscope_sidecar.reader import open_reader

from .agent import SPAN, TRACE, Agent, agent_process
from .jobs import SETTLE_DEADLINE, eventually
from .place import START_DEADLINE, Place


def _reopened(grant: wire.Grant) -> wire.OpenWindow:
    return wire.OpenWindow(
        window=grant.window,
        step=5,
        param_version=4,
        tool=grant.tool,
        level=grant.level,
        opened_unix_ns=1_000_000_000,
        trace_id=TRACE,
        span_id=SPAN,
    )


def test_a_window_goes_from_open_to_ready(place: Place) -> None:
    """
    Registered, granted, recorded, closed: the artifact is packed, the row says ready, the spans are in the trace.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        registered = agent.register()
        grant = agent.open(5)
        agent.send(agent.write(grant))
        row = place.settled("ready")

    assert isinstance(registered, wire.Registered)
    assert "5,8-9" == registered.selection
    assert place.announced()["otlp_http"] == registered.otlp_endpoint
    assert (place.folder / row.artifact).is_file()
    assert (place.folder / row.artifact).stat().st_size == row.bytes
    assert {"open": 0.001, "start": 0.002, "stop": 0.003, "export": 0.004} == row.stall_seconds
    with open_reader(place.attempt / "stepscope.db") as reader:
        spans = {span.name: span for span in reader.spans()}
        totals = reader.totals()
    assert {"profile.opened", "profile.capture"} == set(spans)
    capture = spans["profile.capture"]
    assert (TRACE, SPAN) == (capture.trace_id, capture.parent_span_id)
    assert "ready" == capture.attributes["profile.state"]
    assert f"stepscope:{row.artifact}" == capture.attributes["profile.artifact.uri"]
    assert (1_000_000_000, 2_000_000_000) == (capture.start_unix_ns, capture.end_unix_ns)
    assert 1.0 == totals.value("stepscope_windows_total", role="trainer", tool="torch", outcome="ready")
    assert place.attempt.name == (place.folder / "latest").readlink().name
    assert [] == list(place.socket.parent.iterdir())


def test_a_step_that_is_not_selected_is_denied(place: Place) -> None:
    """
    The answer names the reason, and so does the row.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        answer = agent.answer(wire.Open(id=3, step=6, param_version=5))
        row = place.settled("denied")

    assert wire.Deny(id=3, reason="step_not_selected") == answer
    assert "step_not_selected" == row.reason


def test_a_killed_process_is_noticed(place: Place) -> None:
    """
    `kill -9` inside a window: aborted, process_lost; what it left stays.
    """
    with place.sidecar():
        process, name = agent_process(place.socket)
        try:
            eventually(lambda: [row for row in place.windows() if row.state == "recording"])
        finally:
            process.kill()
            process.communicate()
        row = place.settled("aborted")

    assert (name, "process_lost") == (row.window, row.reason)


def test_a_process_killed_after_its_close_record_is_finalised(place: Place) -> None:
    """
    The record on disk is enough: the message never came.
    """
    with place.sidecar():
        process, name = agent_process(place.socket, "write")
        process.kill()
        process.communicate()
        row = place.settled("ready")

    assert (name, "boundary") == (row.window, row.reason)


def test_a_window_outlives_its_sidecar(place: Place) -> None:
    """
    `kill -9` of the sidecar inside a window, and a new one: registered again, the window ends ready.
    """
    with place.sidecar() as first:
        agent = Agent(place.socket)
        agent.register()
        grant = agent.open(5)
        eventually(lambda: [row for row in place.windows() if row.state == "recording"])
        http = place.announced()["http"]
        first.kill()
        first.wait()
        assert agent.receive() is None
        agent.close()
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register(_reopened(grant))
        agent.send(agent.write(grant))
        row = place.settled("ready")

        assert http == place.announced()["http"]
    assert grant.window == row.window


def test_a_recording_closed_while_there_was_no_sidecar_is_found(place: Place) -> None:
    """
    Its process wrote the record and ended; the next sidecar sweeps the folder.
    """
    with place.sidecar() as first, Agent(place.socket) as agent:
        agent.register()
        grant = agent.open(5)
        first.kill()
        first.wait()
        agent.write(grant)
    with place.sidecar():
        row = place.settled("ready")

    assert grant.window == row.window


def test_of_two_sidecars_started_at_once_one_serves(place: Place) -> None:
    """
    The other ends quietly with 0, and the socket still works.
    """
    both = [place.start(), place.start()]
    try:
        eventually(lambda: any(process.poll() is not None for process in both) and place.announced(), deadline=60)
        codes = [process.poll() for process in both]
        with Agent(place.socket) as agent:
            answer = agent.register()
    finally:
        for process in both:
            process.terminate()
            process.communicate(timeout=120)

    assert isinstance(answer, wire.Registered)
    assert [None, 0] == sorted(codes, key=lambda code: code is not None)


def test_a_process_of_another_attempt_is_refused(place: Place) -> None:
    """
    It is told why, and its connection ends.
    """
    with place.sidecar(), Agent(place.socket, attempt="a2") as agent:
        answer = agent.register()

        assert isinstance(answer, wire.Refused)
        assert "run-a1" in answer.reason
        assert agent.receive() is None


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b'{"kind":"open","id":1}\n', b"\xff\xfe\n", b"[1]\n"])
def test_garbage_ends_its_own_connection_and_nothing_else(place: Place, garbage: bytes) -> None:
    """
    One that speaks nonsense is cut off; another goes on.
    """
    with place.sidecar(), Agent(place.socket) as good, Agent(place.socket, rank=1) as bad:
        good.register()
        bad.send_raw(garbage)

        assert bad.receive() is None
        assert isinstance(good.answer(wire.Open(id=9, step=6, param_version=5)), wire.Deny)


def test_a_line_over_the_limit_ends_its_connection(place: Place) -> None:
    """
    Memory stays bounded whatever a process sends.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        try:
            agent.send_raw(b"x" * (wire.MAX_LINE + 1024 * 1024))
        except (ConnectionError, TimeoutError):
            pass  # It hangs up while we are still talking.

        assert agent.receive() is None


@pytest.mark.slow
def test_an_unattended_sidecar_ends_when_the_run_has_gone(place: Place) -> None:
    """
    Ten seconds after its last process, with exit 0; the socket is gone, the store is closed.
    """
    with place.sidecar(attended="no") as process:
        with Agent(place.socket) as agent:
            agent.register()
            agent.send(wire.Bye())
            assert process.poll() is None
        code = process.wait(SETTLE_DEADLINE)

    assert 0 == code
    assert not place.socket.exists()
    assert not (place.attempt / "stepscope.db-wal").exists()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("STEPSCOPE_STEPS", "five", "grammar"),
        ("STEPSCOPE_HTTP", "0.0.0.0:0", "STEPSCOPE_TOKEN_FILE"),
        ("STEPSCOPE_DIR", "/proc/nowhere", "cannot write"),
        ("STEPSCOPE_RUN", "", "STEPSCOPE_RUN is not set"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_clear_line(place: Place, setting: str, value: str, message: str) -> None:
    """
    Exit 2, the setting named, no stack trace.
    """
    process = place.start(env={setting: value})
    errors = process.communicate(timeout=START_DEADLINE)[1]

    assert 2 == process.returncode
    assert message in errors
    assert "Traceback" not in errors


def test_a_port_in_use_is_one_clear_line(place: Place) -> None:
    """
    Exit 2, the port named; `latest` stays with whatever it led to.
    """
    place.folder.mkdir()
    (place.folder / "latest").symlink_to("run-before")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = place.start(env={"STEPSCOPE_HTTP": f"127.0.0.1:{port}"})
        errors = process.communicate(timeout=START_DEADLINE)[1]

    assert 2 == process.returncode
    assert f"STEPSCOPE_HTTP=127.0.0.1:{port}" in errors
    assert "Traceback" not in errors
    assert Path("run-before") == (place.folder / "latest").readlink()


def test_the_status_of_a_run_is_the_same_from_its_store(place: Place) -> None:
    """
    A selection out of the environment is shown alike before anybody registered, and when the sidecar has ended; its log
    names no address that there is none of.
    """
    place.env["STEPSCOPE_OTLP_GRPC"] = "off"
    with place.sidecar() as process:
        live = eventually(lambda: found if (found := standing.status(place.attempt, headers={}))["live"] else None)
        address = place.announced()["otlp_http"]
        process.terminate()
        _, log = process.communicate(timeout=START_DEADLINE)
    ended = standing.status(place.attempt, headers={})

    assert (True, False) == (live["live"], ended["live"])
    assert "5,8-9" == live["selection"]
    assert {key for key in ended.keys() & live.keys() if ended[key] != live[key]} == {"live"}
    assert f"OTLP {address}\n" in log


def test_sigterm_ends_it_in_order(place: Place) -> None:
    """
    Exit 0, what was open stays open for the next one.
    """
    with place.sidecar() as process, Agent(place.socket) as agent:
        agent.register()
        grant = agent.open(5)
        eventually(lambda: [row for row in place.windows() if row.state == "recording"])
        process.send_signal(signal.SIGTERM)
        code = process.wait(120)

    assert 0 == code
    assert [(grant.window, "recording")] == [(row.window, row.state) for row in place.windows()]
