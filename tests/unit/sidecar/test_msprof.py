"""
``msprof --dynamic`` through the process driver, against a stand-in that follows its documented dialogue.
"""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepscope import ids
from stepscope.names import Reason, State
from stepscope_sidecar.attach import driver
from stepscope_sidecar.attach.msprof import Msprof
from stepscope_sidecar.processes import Process

from .attaching import Desk
from .rig import register

STAND_IN = Path(__file__).parents[2] / "standins" / "msprof.py"


@pytest.fixture(autouse=True)
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The stand-in is what is found as ``msprof``.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "msprof"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@contextmanager
def ascend_process(mode: str = "dynamic") -> Iterator[int]:
    """
    A process that was started with PROFILING_MODE; its pid.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"],
        env={"PROFILING_MODE": mode},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def run(folder: Path, work: Callable[[Desk, Process], Awaitable[None]], mode: str = "dynamic") -> None:
    """
    Do ``work`` at a desk whose tool is msprof, with a process that has it recorded.
    """

    async def whole() -> None:
        desk = Desk(folder, Msprof(), tools="msprof")
        with ascend_process(mode) as pid:
            message = register(pid, process_start=ids.process_start(pid), tools={"msprof": ""})
            process = Process.of(message, peer=pid, unix_ns=1)
            process.link = desk.link
            try:
                await work(desk, process)
            finally:
                await desk.attachments.close()

    asyncio.run(whole())


@pytest.mark.parametrize("release", ["", "pids"])
def test_it_starts_stops_and_quits_around_the_step(
    tmp_path: Path, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Whatever a release answers to these; the folder that msprof makes is the artifact.
    """
    monkeypatch.setenv("STANDIN_MSPROF", release)

    async def work(desk: Desk, process: Process) -> None:
        window = desk.begin(process)
        await desk.state(window, State.RECORDING)
        desk.end(process, window)
        record = await desk.given(window)
        folder = desk.folder / window.folder

        assert "msprof" == record.artifact
        assert ["PROF_000001_20260101000000000_STANDIN"] == [path.name for path in (folder / "msprof").iterdir()]

    run(tmp_path, work)


def test_a_process_without_the_mode_for_it_is_not_tried(tmp_path: Path) -> None:
    """
    msprof would say that it cannot connect, and not why.
    """

    async def work(desk: Desk, process: Process) -> None:
        window = desk.begin(process)
        failed = await desk.state(window, State.FAILED)

        assert Reason.START_ERROR == failed.reason
        assert "started without PROFILING_MODE=dynamic" in failed.detail

    run(tmp_path, work, mode="static")


def test_a_refusal_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In msprof's words.
    """
    monkeypatch.setenv("STANDIN_MSPROF", "no_device")

    async def work(desk: Desk, process: Process) -> None:
        window = desk.begin(process)
        failed = await desk.state(window, State.FAILED)

        assert Reason.START_ERROR == failed.reason
        assert "device has not been set up" in failed.detail

    run(tmp_path, work)


def test_one_that_hangs_at_the_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And the window says so.
    """
    monkeypatch.setenv("STANDIN_MSPROF", "hang")
    stop = driver.Driver.stop
    monkeypatch.setattr(driver.Driver, "stop", lambda self: stop(self, deadline=0.2))

    async def work(desk: Desk, process: Process) -> None:
        window = desk.begin(process)
        await desk.state(window, State.RECORDING)
        desk.end(process, window)
        failed = await desk.state(window, State.FAILED)

        assert Reason.STOP_TIMEOUT == failed.reason

    run(tmp_path, work)


def test_without_it_on_path_it_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    For ``stepscope check``, and for a window that is denied.
    """
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "msprof is not on PATH; it comes with CANN: source its set_env.sh first" == Msprof().unavailable()
