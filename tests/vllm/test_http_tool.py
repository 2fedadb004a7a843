"""
The tool http against a real vLLM server: the whole way from a rollouter's boundary to a window that is listed.
"""

import asyncio
import gzip
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from stepscope.profilers import ForeignProfilerError, NoArtifactError, Request
from stepscope.profilers.http import HttpProfiler
from tests.integration.jobs import Job, environment
from tests.integration.programs import ROOT, run_program
from tests.vllm.serving import MODEL, Server

pytestmark = pytest.mark.timeout(900)

PROGRAM = "tests.integration.served_rollouter"

PROGRAM_DEADLINE = 300.0
"""Seconds for a rollouter of three versions: each stop takes the server some on a busy machine."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """
    The server of all tests here.
    """
    server = Server(tmp_path_factory.mktemp("vllm"))
    try:
        server.ensure()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="class")
def server(running: Server) -> Server:
    """
    The same, started anew if the test before has killed it; before the check for leaks, which its scope is wider than.
    What the test before has left of traces goes, as it would from a server that was started for one test.
    """
    running.ensure()
    for path in running.traces.iterdir() if running.traces.is_dir() else ():
        path.unlink()
    return running


def told(server: Server, **more: str) -> dict[str, str]:
    """
    The settings that name ``server``.
    """
    return {
        "STEPSCOPE_TOOLS": "rollouter=http",
        "STEPSCOPE_HTTP_PROFILER_URL": server.url,
        "STEPSCOPE_HTTP_PROFILER_DIR": str(server.traces),
        **more,
    }


def roll(tmp_path: Path, *arguments: str, **settings: str) -> Job:
    """
    Run the rollouter to its end.
    """
    return run_program(tmp_path / "runs", PROGRAM, "--model", MODEL, *arguments, deadline=PROGRAM_DEADLINE, **settings)


def recorded(window: dict[str, Any]) -> dict[str, Any]:
    """
    The trace of ``window``.
    """
    found: dict[str, Any] = json.loads(gzip.decompress(Path(window["artifact"]).read_bytes()))
    return found


def request(tmp_path: Path) -> Request:
    """
    A window's.
    """
    return Request(window="000001-rollouter-0-7-http-abcdef", level="ops", folder=tmp_path)


def test_three_windows_on_one_server(server: Server, tmp_path: Path) -> None:
    """
    Each leaves a trace of its worker's operators in its folder, linked; the one without traffic closes like the rest.
    """
    job = roll(tmp_path, "--idle", "1", **told(server, STEPSCOPE_STEPS="1-3"))
    windows = {window["step"]: window for window in job.windows}

    assert 0 == job.code, job.errors
    assert [(1, "ready"), (2, "ready"), (3, "ready")] == sorted((step, w["state"]) for step, w in windows.items())
    for step, window in windows.items():
        trace = recorded(window)
        operators = {event["name"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"}
        assert (step != 2) == bool(operators)
        assert (window["window"], window["trace_id"], window["span_id"]) == (
            trace["stepscope.window"],
            trace["stepscope.trace_id"],
            trace["stepscope.span_id"],
        )
        assert f"step-{step:06d}" in Path(window["artifact"]).parts
        assert window["stall_seconds"]["stop"] > 0
    captures = {span["attributes"]["profile.window.id"]: span for span in job.named("profile.capture")}
    assert {(w["window"], w["span_id"]) for w in job.windows} == {
        (name, span["parent_span_id"]) for name, span in captures.items()
    }
    assert [] == list(server.traces.iterdir())


def test_plain_calls_and_leaving_within_the_window(server: Server, tmp_path: Path) -> None:
    """
    The plain boundary calls work too; a process that leaves leaves no profiler on, and its trace is kept.
    """
    job = roll(tmp_path, "--plain", "--leave-open", "--updates", "0", **told(server, STEPSCOPE_STEPS="1"))
    (window,) = job.windows

    assert 0 == job.code, job.errors
    assert ("ready", False, "process_exit") == (window["state"], window["complete"], window["incomplete_reason"])
    assert [event for event in recorded(window)["traceEvents"] if event.get("cat") == "cpu_op"]
    assert 200 == server.post("/start_profile")
    assert 200 == server.post("/stop_profile")


def test_somebody_elses_session_is_left_on(server: Server, tmp_path: Path) -> None:
    """
    The window is refused with the reason; the other's session goes on, and is not stopped.
    """
    assert 200 == server.post("/start_profile")
    job = roll(tmp_path, "--updates", "0", **told(server, STEPSCOPE_STEPS="1"))

    assert [("failed", "foreign_profiler")] == [(window["state"], window["reason"]) for window in job.windows]
    assert 409 == server.post("/start_profile")
    assert 200 == server.post("/stop_profile")


def test_a_failure_that_is_reported_as_success_is_found_out(server: Server, tmp_path: Path) -> None:
    """
    The worker cannot write and the server says it did; the next window is free.
    """
    profiler = HttpProfiler(server.url, folder=server.traces, file_deadline=0.5)

    async def record() -> None:
        await profiler.start(request(tmp_path))
        if server.traces.is_dir():
            server.traces.rmdir()
        server.traces.write_text("a file where the folder should be")
        try:
            with pytest.raises(NoArtifactError, match="could not write"):
                await profiler.stop(request(tmp_path))
        finally:
            server.traces.unlink()
        await profiler.start(request(tmp_path))
        assert (await profiler.stop(request(tmp_path))).artifact

    asyncio.run(record())


def test_a_server_that_hangs(server: Server, tmp_path: Path) -> None:
    """
    Its stop is given up and not sent again; while it hangs no start gets through; afterwards it is free.
    """
    profiler = HttpProfiler(server.url, folder=server.traces, start_deadline=60.0, stop_deadline=2.0)
    assert server.process is not None
    everyone = [psutil.Process(server.process.pid)]
    everyone += everyone[0].children(recursive=True)

    async def hang() -> None:
        await profiler.start(request(tmp_path))
        for process in everyone:
            process.suspend()
        try:
            with pytest.raises(TimeoutError, match="has not answered the stop"):
                await profiler.stop(request(tmp_path))
        finally:
            for process in everyone:
                process.resume()
        patient = HttpProfiler(server.url, folder=server.traces, start_deadline=30.0)
        pause = threading.Event()
        for _ in range(600):
            try:
                await patient.start(request(tmp_path))
                break
            except ForeignProfilerError:
                # The stop that was given up is still on its way.
                await asyncio.to_thread(pause.wait, 0.1)
        assert (await patient.stop(request(tmp_path))).artifact

    asyncio.run(hang())


def test_a_server_that_is_killed_within_the_window(server: Server, tmp_path: Path) -> None:
    """
    The recording is lost with it, and the rollouter goes on: that window says so, and the next that nobody is there.
    """
    directory = tmp_path / "runs"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "stepscope_sidecar.cli", "run", "--", sys.executable, "-m", PROGRAM),
            *("--stepwise", "--model", MODEL, "--updates", "1", "--idle", "1"),
        ],
        cwd=ROOT,
        env=environment(directory, **told(server, STEPSCOPE_STEPS="1-2")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert "version 0\n" == process.stdout.readline()
        server.kill()
        output, errors = process.communicate("\n\n", timeout=PROGRAM_DEADLINE)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    job = Job(directory, process.returncode, output, errors)

    assert (0, ["version 1", "done"]) == (process.returncode, output.split("\n")[:-1]), errors
    assert [(1, "failed", "process_lost"), (2, "denied", "tool_unavailable")] == sorted(
        (window["step"], window["state"], window["reason"]) for window in job.windows
    )
