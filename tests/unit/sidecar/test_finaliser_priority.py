"""
How the finalising child stands back for training, and when no longer.
"""

import asyncio
import fcntl
import os
import signal
from pathlib import Path

import psutil
import pytest

from stepscope_sidecar import finaliser, jobs
from stepscope_sidecar.finaliser import Finaliser
from stepscope_sidecar.jobs import Job, Result
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import child_at_work, job, run


@pytest.mark.parametrize(("light", "policy"), [(0, os.SCHED_IDLE), (1 << 20, os.SCHED_OTHER)])
def test_the_child_stands_back(tmp_path: Path, light: int, policy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It runs at the lowest weight, a heavy one only when nobody else wants the CPU, and in a session of its own.
    """
    monkeypatch.setattr(finaliser, "LIGHT", light)
    folder = traces.put(tmp_path, traces.trace())
    told = asyncio.Event()
    seen: list[tuple[int, int, bool]] = []

    def encode(one: Job) -> bytes:
        # What the child is told is encoded when it has been started and put in its place.
        (child,) = (found.pid for found in psutil.Process().children())
        priority = os.getpriority(os.PRIO_PROCESS, child)
        seen.append((priority, os.sched_getscheduler(child), os.getsid(child) == child))
        told.set()
        return jobs.encode(one)

    async def body() -> None:
        queue = Finaliser(done=lambda result: None)
        worker = asyncio.create_task(queue.work())
        queue.submit(job(folder))
        await told.wait()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    monkeypatch.setattr(finaliser, "encode", encode)
    run(body)

    assert [(19, policy, True)] == seen


@pytest.mark.usefixtures("ordinary")
def test_a_heavy_recording_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    When no core has been free for long, it is begun again at a low weight, while training goes on.
    """
    waited: list[int] = []

    def starve(pid: int) -> None:
        waited.append(pid)
        os.kill(pid, signal.SIGSTOP)

    monkeypatch.setattr(finaliser, "LIGHT", 0)
    monkeypatch.setattr(finaliser, "PATIENCE", 3.0)
    monkeypatch.setattr(finaliser, "GLANCE", 0.01)
    monkeypatch.setattr(finaliser, "_only_when_idle", starve)
    results: list[Result] = []
    folder = traces.put(tmp_path, traces.trace())

    async def body() -> None:
        queue = Finaliser(done=results.append)
        worker = asyncio.create_task(queue.work())
        queue.submit(job(folder))
        await queue.drained()
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
        queue = Finaliser(done=results.append, training=lambda: training[0])
        worker = asyncio.create_task(queue.work())
        queue.submit(job(first))
        queue.submit(job(second))
        await asyncio.to_thread(child_at_work)
        training[0] = False
        os.close(lock)
        await queue.drained()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    run(body)

    assert [True, True] == [result.ready for result in results]
    assert 1 == len(ordinary)
