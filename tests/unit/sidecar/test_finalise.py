"""
The queue of closed windows and the child process that makes their final files.
"""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from stepscope.errors import WireError
from stepscope_sidecar import finalise
from stepscope_sidecar.finalise import Finaliser, Job, Result
from tests.unit.sidecar import traces

T = TypeVar("T")

DEADLINE = 120.0
"""Seconds: the child runs only when nobody else wants the CPU, and tests share two cores with much else."""


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """
    Children run at the priority of this process, so that a busy machine does not keep the tests waiting; their pids.
    """
    stood_back: list[int] = []
    monkeypatch.setattr(finalise, "_stand_back", stood_back.append)
    monkeypatch.setattr(finalise, "_only_when_idle", lambda pid: None)
    return stood_back


def job(folder: Path, **changes: object) -> Job:
    """
    A job for the window in ``folder``.
    """
    return Job(folder=folder, closed=traces.closed(**changes), pid=traces.PID, world_size=2)


def until(found: Callable[[], T | None]) -> T:
    """
    What ``found`` gives, once it gives anything.
    """
    ticks = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if value := found():
            return value
        ticks.wait(0.02)
    raise AssertionError("it never came to that")


def waits_for_lock(process: psutil.Process) -> bool:
    """
    Whether ``process`` has begun its job and is kept from its folder.
    """
    return str(process.pid) in {
        line.split()[5] for line in Path("/proc/locks").read_text().splitlines() if " -> " in f" {line} "
    }


def run(body: Callable[[], Awaitable[None]]) -> None:
    """
    Run ``body`` in an event loop of its own, with a deadline.
    """

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await body()

    asyncio.run(bounded())


def in_children(*jobs: Job) -> list[Result]:
    """
    The results of ``jobs``, each done by a real child process.
    """
    results: list[Result] = []

    async def body() -> None:
        finaliser = Finaliser(done=results.append)
        worker = asyncio.create_task(finaliser.work())
        for one in jobs:
            finaliser.submit(one)
        await finaliser.drained()
        assert 0 == finaliser.pending
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    run(body)
    return results


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
    assert (102, 1, 0) == (first.events, first.markers_expected, first.markers_missing)
    assert 0 < first.cpu_seconds < 60
    assert 1_000_000 < first.peak_memory < 300_000_000


def test_what_cannot_be_finalised_fails_with_a_reason(tmp_path: Path) -> None:
    """
    A broken recording, a missing one and a window that left nothing are told apart, and what there is stays.
    """
    broken = traces.put(tmp_path / "broken", traces.trace()[:-30])
    missing = tmp_path / "missing"
    missing.mkdir()

    found = [
        finalise.finalise(job(broken)),
        finalise.finalise(job(missing)),
        finalise.finalise(job(missing, artifact="")),
        finalise.finalise(job(tmp_path / "nowhere")),
    ]

    assert ["artifact_invalid", "no_artifact", "no_artifact", "no_artifact"] == [result.reason for result in found]
    assert not any(result.ready for result in found)
    assert all(result.detail for result in found)
    assert ["recording.json"] == [path.name for path in broken.iterdir()]


def test_an_incomplete_recording_is_ready_and_says_so(tmp_path: Path) -> None:
    """
    Missing markers are told with their share; what the process itself knew to be missing comes first.
    """
    spans = [traces.SPAN, "1" * 16]
    missing = finalise.finalise(job(traces.put(tmp_path / "a", traces.trace()), mirrored=spans))
    capped = finalise.finalise(job(traces.put(tmp_path / "b", traces.trace()), incomplete="capped"))

    assert (True, False, "markers_missing", 0.5) == (
        missing.ready,
        missing.complete,
        missing.incomplete_reason,
        missing.incomplete_share,
    )
    assert (False, "capped", None) == (capped.complete, capped.incomplete_reason, capped.incomplete_share)


def test_a_full_disk_leaves_the_raw_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without room for the final file the window fails for want of disk, and the recording is still there.
    """
    folder = traces.put(tmp_path, traces.trace())

    def full(self: object, packed: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stepscope_sidecar.artifacts.kineto._Packed._put", full)
    found = finalise.finalise(job(folder))

    assert ("budget_disk", "[Errno 28] No space left on device") == (found.reason, found.detail)
    assert ["recording.json"] == [path.name for path in folder.iterdir()]


def test_a_job_survives_the_way_to_the_child(tmp_path: Path) -> None:
    """
    What the child reads is the job that was submitted; anything else is refused.
    """
    one = job(tmp_path, continued=[traces.continued(1, 2)], incomplete="capped")

    assert one == finalise.decode(finalise.encode(one))
    for nonsense in (b"", b"{}", b"[]", b'{"folder": 1, "closed": "{}", "pid": 1, "world_size": null}'):
        with pytest.raises(WireError):
            finalise.decode(nonsense)


@pytest.mark.usefixtures("ordinary")
def test_a_child_that_dies_fails_its_window_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The next job is done as if nothing had happened.
    """
    good = traces.put(tmp_path / "good", traces.trace())
    encode = finalise.encode
    monkeypatch.setattr(finalise, "encode", lambda one: encode(one) if one.folder == good else b"nonsense")

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
    monkeypatch.setattr(finalise, "AGAIN", (0.0, 0.0))

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
    monkeypatch.setattr(finalise, "AGAIN", ())

    (found,) = in_children(job(traces.put(tmp_path / "1", traces.trace())))

    assert "no finalising process: [Errno 2]" in found.detail


def test_one_job_at_a_time_in_order() -> None:
    """
    A job begins when the one before it is done, and all that were submitted are done before it is drained.
    """
    log: list[str] = []

    async def runner(one: Job) -> Result:
        log.append(f"begin {one.pid}")
        await asyncio.sleep(0)
        log.append(f"end {one.pid}")
        return Result(window=str(one.pid))

    async def body() -> None:
        finaliser = Finaliser(done=lambda result: log.append(f"done {result.window}"), runner=runner)
        await finaliser.drained()
        worker = asyncio.create_task(finaliser.work())
        for number in range(3):
            finaliser.submit(Job(folder=Path("x"), closed=traces.closed(), pid=number))
        assert 3 == finaliser.pending
        await finaliser.drained()
        worker.cancel()

    run(body)

    assert [f"{what} {number}" for number in range(3) for what in ("begin", "end", "done")] == log


@pytest.mark.usefixtures("ordinary")
def test_cutting_off_the_worker_kills_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A sidecar that ends in the middle of a job leaves no child and the raw recording.
    """
    folder = traces.put(tmp_path, traces.trace())
    lock = os.open(folder, os.O_RDONLY)
    children: list[psutil.Process] = []

    async def body() -> None:
        finaliser = Finaliser(done=lambda result: None)
        worker = asyncio.create_task(finaliser.work())
        finaliser.submit(job(folder))
        while not children:
            await asyncio.sleep(0.01)
            children.extend(psutil.Process().children())
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
        "from stepscope_sidecar import finalise\n"
        "job = finalise.decode(sys.stdin.buffer.readline())\n"
        "asyncio.run(finalise.in_child(job, stand_back=False))\n"
    )
    sidecar = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    assert sidecar.stdin is not None
    try:
        sidecar.stdin.write(finalise.encode(job(folder)) + b"\n")
        sidecar.stdin.close()
        child = until(
            lambda: next((one for one in psutil.Process(sidecar.pid).children() if waits_for_lock(one)), None)
        )
    finally:
        sidecar.kill()
        sidecar.wait()

    try:
        assert until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    finally:
        os.close(lock)


@pytest.mark.usefixtures("ordinary")
def test_a_child_out_of_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A job that does not end in its time fails.
    """
    monkeypatch.setattr(finalise, "TIMEOUT", 0.0)

    (found,) = in_children(job(traces.put(tmp_path, traces.trace())))

    assert ("artifact_invalid", "took longer than 0 s") == (found.reason, found.detail)


@pytest.mark.parametrize(("light", "policy"), [(0, os.SCHED_IDLE), (1 << 20, os.SCHED_OTHER)])
def test_the_child_stands_back(tmp_path: Path, light: int, policy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It runs at the lowest weight, a heavy one only when nobody else wants the CPU, and in a session of its own.
    """
    monkeypatch.setattr(finalise, "LIGHT", light)
    folder = traces.put(tmp_path, traces.trace())
    wanted = (19, policy, True)
    seen: list[tuple[int, int, bool]] = []

    async def body() -> None:
        finaliser = Finaliser(done=lambda result: None)
        worker = asyncio.create_task(finaliser.work())
        finaliser.submit(job(folder))
        while finaliser.pending and wanted not in seen:
            await asyncio.sleep(0.005)
            for child in psutil.Process().children():
                try:
                    policy = os.sched_getscheduler(child.pid)
                    seen.append((os.getpriority(os.PRIO_PROCESS, child.pid), policy, os.getsid(child.pid) == child.pid))
                except ProcessLookupError:
                    continue
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    run(body)

    assert wanted in seen


def test_a_heavy_recording_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    When no core has been free for long, it is begun again at a low weight, while training goes on.
    """
    waited: list[int] = []

    def starve(pid: int) -> None:
        waited.append(pid)
        os.kill(pid, signal.SIGSTOP)

    monkeypatch.setattr(finalise, "LIGHT", 0)
    monkeypatch.setattr(finalise, "PATIENCE", 0.5)
    monkeypatch.setattr(finalise, "GLANCE", 0.01)
    monkeypatch.setattr(finalise, "_only_when_idle", starve)
    results: list[Result] = []
    folder = traces.put(tmp_path, traces.trace())

    async def body() -> None:
        finaliser = Finaliser(done=results.append)
        worker = asyncio.create_task(finaliser.work())
        finaliser.submit(job(folder))
        await finaliser.drained()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    run(body)

    assert 1 == len(waited)
    assert [True] == [result.ready for result in results]


def test_after_training_the_child_runs_as_the_sidecar_does(tmp_path: Path, ordinary: list[int]) -> None:
    """
    Once the run's processes have gone somebody waits for the recordings: a child that stands back begins again.
    """
    results: list[Result] = []
    training = [True]
    first, second = (traces.put(tmp_path / name, traces.trace()) for name in ("a", "b"))
    lock = os.open(first, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)

    async def body() -> None:
        finaliser = Finaliser(done=results.append, training=lambda: training[0])
        worker = asyncio.create_task(finaliser.work())
        finaliser.submit(job(first))
        finaliser.submit(job(second))
        while not ordinary:
            await asyncio.sleep(0.01)
        training[0] = False
        os.close(lock)
        await finaliser.drained()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    run(body)

    assert [True, True] == [result.ready for result in results]
    assert 1 == len(ordinary)
