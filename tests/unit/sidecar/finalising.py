"""
Jobs for the finaliser, and running them to their end, for the tests of it.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from stepscope_sidecar.artifacts import kineto
from stepscope_sidecar.artifacts.survey import Recording
from stepscope_sidecar.finaliser import Finaliser
from stepscope_sidecar.jobs import Job, Result
from tests.unit.sidecar import traces

T = TypeVar("T")

DEADLINE = 120.0
"""Seconds: the child runs only when nobody else wants the CPU, and tests share two cores with much else."""


def job(folder: Path, **changes: object) -> Job:
    """
    A job for the window in ``folder``.
    """
    return Job(folder=folder, closed=traces.closed(**changes), pid=traces.PID, world_size=2)


def finalised(folder: Path, data: bytes, **changes: Any) -> Recording:
    """
    What finalising ``data``, a Chrome trace, gives.
    """
    return kineto.finalise(traces.put(folder, data), traces.closed(**changes), pid=traces.PID)


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
        queue = Finaliser(done=results.append)
        worker = asyncio.create_task(queue.work())
        for one in jobs:
            queue.submit(one)
        await queue.drained()
        assert 0 == queue.pending
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    run(body)
    return results


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


def child_at_work(parent: int | None = None) -> psutil.Process:
    """
    The finalising child of ``parent`` (of this process), once it has begun its job and is kept from its folder.
    """

    def held() -> psutil.Process | None:
        waiting = {line.split()[5] for line in Path("/proc/locks").read_text().splitlines() if " -> " in f" {line} "}
        return next((child for child in psutil.Process(parent).children() if str(child.pid) in waiting), None)

    return until(held)
