"""
The tool http the whole way: a rollouter beside a stand-in for vLLM's or SGLang's server, and a real sidecar.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.jobs import CLI, Job, environment
from tests.integration.programs import PROGRAM_DEADLINE, ROOT, run_program
from tests.standins.inference import StandInSglang, StandInVllm

PROGRAM = "tests.integration.served_rollouter"


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[StandInVllm]:
    """
    A stand-in for vLLM's server, and where it leaves its traces.
    """
    with StandInVllm(tmp_path / "server") as server:
        yield server


def told(server: StandInVllm) -> dict[str, str]:
    """
    The settings that name ``server``.
    """
    return {
        "STEPSCOPE_TOOLS": "rollouter=http",
        "STEPSCOPE_STEPS": "1-3",
        "STEPSCOPE_HTTP_PROFILER_URL": server.url,
        "STEPSCOPE_HTTP_PROFILER_DIR": str(server.folder),
    }


def roll(tmp_path: Path, *arguments: str, **settings: str) -> Job:
    """
    Run the rollouter to its end.
    """
    return run_program(tmp_path / "runs", PROGRAM, *arguments, deadline=PROGRAM_DEADLINE, **settings)


def by_step(job: Job) -> dict[int, dict[str, Any]]:
    """
    The windows of ``job``, one of each step.
    """
    found = {window["step"]: window for window in job.windows}
    assert len(found) == len(job.windows)
    return found


def check_linked(job: Job, window: dict[str, Any]) -> None:
    """
    The trace of a window lies in the window's folder, leads to its span, and a span stands for it.
    """
    path = Path(window["artifact"])
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert path.parent.name == "http"
    assert path.parent.parent.parent.name == f"step-{window['step']:06d}"
    assert ["aten::mm"] == [event["name"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    assert (window["window"], window["span_id"]) == (trace["stepscope.window"], trace["stepscope.span_id"])
    captures = [s for s in job.named("profile.capture") if s["attributes"]["profile.window.id"] == window["window"]]
    assert [(window["trace_id"], window["span_id"])] == [(s["trace_id"], s["parent_span_id"]) for s in captures]


@pytest.mark.parametrize("calls", [[], ["--plain"]], ids=["async", "plain"])
def test_each_step_has_its_trace(vllm: StandInVllm, tmp_path: Path, calls: list[str]) -> None:
    """
    Three windows in a row on one server, by either kind of boundary calls: ready, in their folders, linked.
    """
    job = roll(tmp_path, *calls, **told(vllm))
    windows = by_step(job)

    assert 0 == job.code, job.errors
    assert {1: "ready", 2: "ready", 3: "ready"} == {step: window["state"] for step, window in windows.items()}
    for window in windows.values():
        check_linked(job, window)
        assert {"open", "start", "stop"} <= set(window["stall_seconds"])
        assert ("http", "ops") == (window["tool"], window["level"])
    assert ["/start_profile", "/stop_profile"] * 3 == vllm.paths()
    assert [] == list(vllm.folder.iterdir())


def test_sglang_is_told_where(tmp_path: Path) -> None:
    """
    Its trace is written into the window's folder.
    """
    with StandInSglang() as server:
        job = roll(
            tmp_path,
            STEPSCOPE_TOOLS="rollouter=http",
            STEPSCOPE_STEPS="2",
            STEPSCOPE_HTTP_PROFILER_URL=server.url,
            STEPSCOPE_HTTP_PROFILER_KIND="sglang",
        )
    windows = by_step(job)

    assert (0, {2: "ready"}) == (job.code, {step: window["state"] for step, window in windows.items()})
    check_linked(job, windows[2])


def test_a_process_that_leaves_within_a_window_leaves_no_profiler_on(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The server outlives it, so it is stopped at exit; the recording is kept and says that it was cut short.
    """
    url = vllm.url.replace("127.0.0.1", "localhost")
    job = roll(tmp_path, "--leave-open", **{**told(vllm), "STEPSCOPE_HTTP_PROFILER_URL": url})
    last = by_step(job)[3]

    assert 0 == job.code, job.errors
    assert not vllm.active
    assert ("ready", False, "process_exit") == (last["state"], last["complete"], last["incomplete_reason"])


def test_somebody_elses_session_is_left_on(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    No window takes it over, and none stops it.
    """
    vllm.active = True
    job = roll(tmp_path, **told(vllm))

    assert 0 == job.code, job.errors
    assert {("failed", "foreign_profiler")} == {(window["state"], window["reason"]) for window in job.windows}
    assert vllm.active
    assert 0 == vllm.stops


def test_a_server_that_dies_ends_windows_not_the_run(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    Its window is lost with it, later ones find nobody; the rollouter goes on to its end.
    """
    directory = tmp_path / "runs"
    with stepwise(directory, **told(vllm)) as process:
        hear(process, "version 0")
        go_on(process)
        hear(process, "version 1")
        vllm.go_away()
        go_on(process)
        hear(process, "version 2")
        go_on(process)
        output, errors = process.communicate(timeout=60)
    windows = by_step(Job(directory, process.returncode, output, errors))

    assert (0, "done\n") == (process.returncode, output), errors
    assert [("ready", "boundary"), ("failed", "process_lost"), ("denied", "tool_unavailable")] == [
        (windows[step]["state"], windows[step]["reason"]) for step in (1, 2, 3)
    ]


def test_a_start_that_failed_unsaid_is_a_window_without_artifact(vllm: StandInVllm, tmp_path: Path) -> None:
    """
    The server reported success and left nothing.
    """
    vllm.worker_fails = True
    job = roll(tmp_path, **{**told(vllm), "STEPSCOPE_STEPS": "2"})

    assert [("failed", "no_artifact")] == [(window["state"], window["reason"]) for window in job.windows]
    assert 0 == job.code, job.errors


@contextmanager
def stepwise(directory: Path, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    """
    The rollouter, which waits for a line within each version, until the block is left.
    """
    process = subprocess.Popen(
        [*CLI, "run", "--", sys.executable, "-m", PROGRAM, "--stepwise"],
        cwd=ROOT,
        env=environment(directory, **settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def hear(process: "subprocess.Popen[str]", line: str) -> None:
    """
    Wait for the line that comes next.
    """
    assert process.stdout is not None
    assert f"{line}\n" == process.stdout.readline()


def go_on(process: "subprocess.Popen[str]") -> None:
    """
    Let the version's time be over.
    """
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
