"""
A real sidecar process, driven by scripted agents over its socket.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from stepscope import wire
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import WindowRow

from .agent import SPAN, TRACE, Agent, agent_process
from .jobs import eventually

SETTLE_DEADLINE = 120.0
"""Seconds for a window to be final: finalising only gets the CPU that nobody else wants."""

START_DEADLINE = 30.0
"""Seconds for a sidecar to listen on a busy machine."""


@dataclass
class Place:
    """
    Where one attempt's sidecars live.
    """

    folder: Path
    socket: Path
    env: dict[str, str]

    @property
    def attempt(self) -> Path:
        """
        The attempt's folder.
        """
        return self.folder / "run-a1"

    @contextmanager
    def sidecar(self, *, attended: str = "yes") -> Iterator["subprocess.Popen[str]"]:
        """
        A sidecar that listens; ended in order where it has not ended.
        """
        process = self.start(attended=attended)
        try:
            eventually(lambda: self.announced().get("pid") == process.pid or process.poll() is not None)
            assert process.poll() is None, process.communicate()[1]
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=30)

    def start(self, *, attended: str = "yes", env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """
        Start a sidecar and do not wait for it.
        """
        return subprocess.Popen(
            [sys.executable, "-m", "stepscope_sidecar", "--attended", attended],
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def announced(self) -> dict[str, Any]:
        """
        What the sidecar wrote down about itself.
        """
        try:
            found: dict[str, Any] = json.loads((self.attempt / "sidecar.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def windows(self) -> list[WindowRow]:
        """
        The windows in the store.
        """
        with open_reader(self.attempt / "stepscope.db") as reader:
            return reader.windows()

    def settled(self, state: str) -> WindowRow:
        """
        The one window, once it is in ``state``.
        """
        found = eventually(lambda: [row for row in self.windows() if row.state == state], deadline=SETTLE_DEADLINE)
        assert len(self.windows()) == 1
        return found[0]

    def post(self, path: str, **body: object) -> dict[str, Any]:
        """
        Give the sidecar an order over HTTP.
        """
        answer = httpx.post(f"{self.announced()['http']}{path}", json=body, trust_env=False)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """
    An attempt with steps 5 and 8-9 selected.
    """
    path = tmp_path / "s" / "control.sock"
    env = {
        **os.environ,
        "STEPSCOPE_STEPS": "5,8-9",
        "STEPSCOPE_DIR": str(tmp_path / "runs"),
        "STEPSCOPE_RUN": "run",
        "STEPSCOPE_ATTEMPT": "a1",
        "STEPSCOPE_SOCKET": str(path),
    }
    return Place(folder=tmp_path / "runs", socket=path, env=env)


def _reopened(grant: wire.Grant) -> wire.OpenWindow:
    return wire.OpenWindow(
        window=grant.window,
        step=5,
        param_version=4,
        tool=grant.tool,
        level=grant.level,
        folder=grant.folder,
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
    assert place.announced()["http"] == registered.http
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
            process.communicate(timeout=30)

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


def test_stop_and_profile_reach_a_connected_process(place: Place) -> None:
    """
    Orders over HTTP are pushed at once: stop closes the window, profile selects anew.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        grant = agent.open(5)
        eventually(lambda: [row for row in place.windows() if row.state == "recording"])
        told = place.post("/api/stop")
        pushed = [agent.receive(), agent.receive()]
        denied = agent.answer(wire.Open(id=3, step=8, param_version=7))
        place.post("/api/profile", steps="12")
        selected = agent.receive()

    assert 1 == told["windows_open"]
    assert wire.Selected(selection="5,8-9", revision=2, stopped=True) in pushed
    assert wire.Stop(window=grant.window, reason="stopped_by_user") in pushed
    assert wire.Deny(id=3, reason="stopped_by_user") == denied
    assert wire.Selected(selection="12", revision=3, stopped=False) == selected


def test_a_restart_keeps_the_selection_and_the_stop(place: Place) -> None:
    """
    An order given once holds for the attempt, whatever the environment says.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        place.post("/api/profile", steps="12")
        place.post("/api/stop")
    with place.sidecar(), Agent(place.socket) as agent:
        registered = agent.register()

    assert isinstance(registered, wire.Registered)
    assert ("12", 3, True) == (registered.selection, registered.revision, registered.stopped)


def test_a_stop_file_stops_the_run(place: Place) -> None:
    """
    `STOP` in STEPSCOPE_DIR is an order, until `profile` overrides it.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        (place.folder / "STOP").touch()
        stopped = agent.receive()
        place.post("/api/profile", steps="12")
        selected = agent.receive()
        denied = agent.answer(wire.Open(id=3, step=8, param_version=7))

    assert wire.Selected(selection="5,8-9", revision=2, stopped=True) == stopped
    assert wire.Selected(selection="12", revision=3, stopped=False) == selected
    assert wire.Deny(id=3, reason="step_not_selected") == denied


def test_a_stop_file_that_an_earlier_run_left_is_told_of(place: Place) -> None:
    """
    To each process that registers, in the status, and in the store once the run has ended.
    """
    place.folder.mkdir()
    (place.folder / "STOP").touch()
    with place.sidecar(), Agent(place.socket) as agent:
        registered = agent.register()
        denied = agent.answer(wire.Open(id=3, step=5, param_version=4))
        status = httpx.get(f"{place.announced()['http']}/api/status", trust_env=False).json()
    with open_reader(place.attempt / "stepscope.db") as reader:
        kept = reader.selections()[-1]

    by = f"file {place.folder / 'STOP'}"
    assert isinstance(registered, wire.Registered)
    assert [True] == [f"stopped by the {by}" in warning for warning in registered.warnings]
    assert wire.Deny(id=3, reason="stopped_by_user") == denied
    assert (True, by) == (status["stopped"], status["stopped_by"])
    assert (True, by) == (kept.stopped, kept.source)


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
        code = process.wait(40)

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


def test_sigterm_ends_it_in_order(place: Place) -> None:
    """
    Exit 0, what was open stays open for the next one.
    """
    with place.sidecar() as process, Agent(place.socket) as agent:
        agent.register()
        grant = agent.open(5)
        eventually(lambda: [row for row in place.windows() if row.state == "recording"])
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)

    assert 0 == code
    assert [(grant.window, "recording")] == [(row.window, row.state) for row in place.windows()]
