"""
The queue of closed windows and the life of the child process that makes their final artifacts.
"""

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from stepscope_sidecar import finaliser, jobs
from stepscope_sidecar.finaliser import Finaliser
from stepscope_sidecar.jobs import Job, Result
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import child_at_work, in_children, job, run, until


@pytest.mark.usefixtures("ordinary")
def test_a_child_finalises_and_says_what_it_took(tmp_path: Path) -> None:
    """
    The result describes the file, and carries the child's own CPU seconds and peak memory; a second time is the same.
    """
    folder = traces.put(tmp_path / "a", traces.trace(100))

    first, second = in_children(job(folder), job(folder))

    assert (True, True, "", None) == (first.ready, first.complete, first.incomplete_reason, first.incomplete_share)
    assert str(folder / "recording.json.gz") == first.artifact == second.artifact
    assert (first.sha256, first.bytes, first.events) == (second.sha256, second.bytes, second.events)
    assert Path(first.artifact).stat().st_size == first.bytes
    assert 102 == first.events
    assert 0 < first.cpu_seconds < 60
    assert 1_000_000 < first.peak_memory < 300_000_000


@pytest.mark.usefixtures("ordinary")
def test_a_child_that_dies_fails_its_window_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The next job is done as if nothing had happened.
    """
    good = traces.put(tmp_path / "good", traces.trace())
    encode = jobs.encode
    monkeypatch.setattr(finaliser, "encode", lambda one: encode(one) if one.folder == good else b"nonsense")

    first, second = in_children(job(tmp_path / "bad"), job(good))

    assert "artifact_invalid" == first.reason
    assert "not a job" in first.detail
    assert second.ready


@pytest.mark.usefixtures("ordinary")
@pytest.mark.parametrize(("deaths", "ready"), [(2, True), (3, False)])
def test_a_child_killed_from_outside_is_tried_again(
    tmp_path: Path, deaths: int, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The recording is not to blame; only where it happens each time is the window given up, and the next one done.
    """
    count = tmp_path / "count"
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho x >> {count}\n[ "$(wc -l < {count})" -le {deaths} ] && kill -KILL $$\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(finaliser, "AGAIN", (0.0, 0.0))

    first, second = in_children(
        job(traces.put(tmp_path / "1", traces.trace())), job(traces.put(tmp_path / "2", traces.trace()))
    )

    assert [ready, True] == [first.ready, second.ready]
    assert ("" if ready else "no finalising process: it was killed, for want of memory perhaps") == first.detail


@pytest.mark.usefixtures("ordinary")
def test_a_child_that_cannot_be_started_fails_its_window_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Also with no process to be had, the sidecar goes on.
    """
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    monkeypatch.setattr(finaliser, "AGAIN", ())

    (found,) = in_children(job(traces.put(tmp_path / "1", traces.trace())))

    assert "no finalising process: [Errno 2]" in found.detail


def test_one_job_at_a_time_in_order() -> None:
    """
    A job begins when the one before it is done, and all that were submitted are done before it is drained.
    """
    log: list[str] = []

    async def runner(one: Job) -> Result:
        log.append(f"begin {one.pid}")
        await asyncio.to_thread(log.append, f"away {one.pid}")
        log.append(f"end {one.pid}")
        return Result(window=str(one.pid))

    async def body() -> None:
        queue = Finaliser(done=lambda result: log.append(f"done {result.window}"), runner=runner)
        await queue.drained()
        worker = asyncio.create_task(queue.work())
        for number in range(3):
            queue.submit(Job(folder=Path("x"), closed=traces.closed(), pid=number))
        assert 3 == queue.pending
        await queue.drained()
        worker.cancel()

    run(body)

    assert [f"{what} {number}" for number in range(3) for what in ("begin", "away", "end", "done")] == log


@pytest.mark.parametrize(("tries", "ready"), [(2, True), (4, False)])
def test_a_disk_that_is_full_for_a_moment_costs_no_recording(
    tries: int, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The job is done again; only where there is no space for long has the window failed. All that CPU is counted.
    """
    monkeypatch.setattr(finaliser, "ROOM", (0.0, 0.0, 0.0))
    full = iter(range(tries))
    results: list[Result] = []

    async def runner(one: Job) -> Result:
        if next(full, None) is not None:
            return Result(window=one.closed.window, reason="budget_disk", cpu_seconds=1.0)
        return Result(window=one.closed.window, artifact="/a", cpu_seconds=1.0)

    async def body() -> None:
        queue = Finaliser(done=results.append, runner=runner)
        worker = asyncio.create_task(queue.work())
        queue.submit(Job(folder=Path("x"), closed=traces.closed(), pid=7))
        await queue.drained()
        worker.cancel()

    run(body)

    assert [(ready, float(min(tries + 1, 4)))] == [(result.ready, result.cpu_seconds) for result in results]


@pytest.mark.usefixtures("ordinary")
def test_cutting_off_the_worker_kills_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A sidecar that ends in the middle of a job leaves no child and the raw recording.
    """
    folder = traces.put(tmp_path, traces.trace())
    lock = os.open(folder, os.O_RDONLY)
    children: list[psutil.Process] = []

    async def body() -> None:
        queue = Finaliser(done=lambda result: None)
        worker = asyncio.create_task(queue.work())
        queue.submit(job(folder))
        children.append(await asyncio.to_thread(child_at_work))
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        run(body)
    finally:
        os.close(lock)

    assert not any(child.is_running() for child in children)
    assert ["recording.json"] == [path.name for path in folder.iterdir()]


def test_a_killed_sidecar_leaves_no_child(tmp_path: Path) -> None:
    """
    The child of a sidecar that was killed goes too, so that the next sidecar's child does not wait for it.
    """
    folder = traces.put(tmp_path, traces.trace())
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    script = (
        "import asyncio, sys\n"
        "from stepscope_sidecar import finaliser, jobs\n"
        "job = jobs.decode(sys.stdin.buffer.readline())\n"
        "asyncio.run(finaliser.in_child(job, stand_back=False))\n"
    )
    sidecar = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    assert sidecar.stdin is not None
    try:
        sidecar.stdin.write(jobs.encode(job(folder)) + b"\n")
        sidecar.stdin.close()
        child = child_at_work(sidecar.pid)
    finally:
        sidecar.kill()
        sidecar.wait()

    try:
        assert until(lambda: _ended(child))
    finally:
        os.close(lock)


@pytest.mark.usefixtures("ordinary")
def test_a_child_out_of_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A job that does not end in its time fails.
    """
    monkeypatch.setattr(finaliser, "TIMEOUT", 0.0)

    (found,) = in_children(job(traces.put(tmp_path, traces.trace())))

    assert ("artifact_invalid", "took longer than 0 s") == (found.reason, found.detail)


@pytest.fixture
def chatty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Something on the job's path prints in each Python: as it begins, and as it ends.
    """
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import atexit\nprint('{loaded}')\natexit.register(print, '{done}')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), *sys.path)))


@pytest.mark.usefixtures("ordinary", "chatty")
def test_what_others_print_in_the_child_is_no_answer(tmp_path: Path) -> None:
    """
    The window is made, whatever a program on the job's path prints.
    """
    (found,) = in_children(job(traces.put(tmp_path / "a", traces.trace())))

    assert (True, "") == (found.ready, found.detail)


@pytest.mark.usefixtures("ordinary")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("", "its process ended without an answer"),
        ("printf nonsense >&$3", "its process answered b'nonsense'"),
        ("printf '{\"a\": 1}' >&$3", "Result.__init__() got an unexpected keyword argument 'a'"),
    ],
)
def test_an_answer_that_is_none_fails_its_window_alone(
    tmp_path: Path, script: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The window says what came instead, and the next one is made.
    """
    first = tmp_path / "first"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\n[ -e {first} ] && exec {sys.executable} "$@"\ntouch {first}\n{script}\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    bad, good = in_children(
        job(traces.put(tmp_path / "1", traces.trace())), job(traces.put(tmp_path / "2", traces.trace()))
    )

    assert ("artifact_invalid", why) == (bad.reason, bad.detail)
    assert good.ready


@pytest.mark.parametrize("where", ["runner", "done"])
def test_no_failure_of_one_window_ends_the_queue(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    It fails with the reason, which is logged, and the next one is done.
    """
    results: list[Result] = []

    async def runner(one: Job) -> Result:
        if where == "runner" and one.pid == 0:
            raise RuntimeError("out of order")
        return Result(window=str(one.pid))

    def done(result: Result) -> None:
        if where == "done" and result.window == "0":
            raise RuntimeError("out of order")
        results.append(result)

    async def body() -> None:
        queue = Finaliser(done=done, runner=runner)
        worker = asyncio.create_task(queue.work())
        for number in range(2):
            queue.submit(Job(folder=Path("x"), closed=traces.closed(), pid=number))
        await queue.drained()
        worker.cancel()

    run(body)

    assert [("artifact_invalid", "RuntimeError: out of order"), ("", "")] == [(r.reason, r.detail) for r in results]
    assert "cannot be finalised" in caplog.text


def _ended(child: psutil.Process) -> bool:
    try:
        return not child.is_running() or bool(child.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        # It was taken away in between.
        return True
