"""
What a job loses while it records, and when: after which update of the actor. The job waits until it has happened.
"""

import asyncio
import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from stepscope import settings

ALL = {"trainer", "actor", "rollouter"}

PATIENCE = 60.0
"""Seconds for a sidecar to come back."""


class Losses:
    """
    An actor between those who train and the driver, which alone can take a node away.
    """

    def __init__(self) -> None:
        self._expected: set[int] = set()
        self._reached: asyncio.Queue[int] = asyncio.Queue()
        self._done: asyncio.Queue[int] = asyncio.Queue()

    async def expect(self, moments: list[int]) -> None:
        """
        The updates after which something happens.
        """
        self._expected = set(moments)

    async def after(self, update: int) -> None:
        """
        From the job: ``update`` is done. Returns when what comes after it has happened.
        """
        if update in self._expected:
            await self._reached.put(update)
            await self._done.get()

    async def reached(self) -> int:
        """
        From the driver: the next one; 0 when the job is over.
        """
        return await self._reached.get()

    async def done(self) -> None:
        """
        From the driver: it has happened.
        """
        await self._done.put(0)

    async def over(self) -> None:
        """
        The job is over.
        """
        await self._reached.put(0)


class Watch:
    """
    The driver's end, on a thread of its own.
    """

    def __init__(self, losses: Any) -> None:
        self._losses = losses
        self._acts: dict[int, Callable[[], object]] = {}
        self._sidecar = 0
        self.happened: list[int] = []

    @property
    def moments(self) -> list[int]:
        """
        The updates after which something happens.
        """
        return list(self._acts)

    def on(self, update: int, act: Callable[[], object]) -> None:
        """
        After ``update``, ``act``.
        """
        self._acts[update] = act

    def run(self) -> None:
        """
        Until the job is over.
        """
        while update := ray.get(self._losses.reached.remote()):
            try:
                self._acts[update]()
                self.happened.append(update)
            finally:
                ray.get(self._losses.done.remote())

    def kill_sidecar(self) -> None:
        """
        Without a word.
        """
        self._sidecar = _announced()["pid"]
        os.kill(self._sidecar, signal.SIGKILL)

    def sidecar_is_back(self) -> None:
        """
        Another one, which everybody has found.
        """
        end, pause = time.monotonic() + PATIENCE, threading.Event()
        while time.monotonic() < end:
            found = _announced()
            if found["pid"] != self._sidecar:
                with urllib.request.urlopen(f"{found['http']}/api/status", timeout=PATIENCE) as answer:
                    processes = json.load(answer)["processes"]
                if {process["role"] for process in processes if process["connected"]} >= ALL:
                    return
            pause.wait(0.1)
        raise AssertionError("no sidecar came back")


def _announced() -> dict[str, Any]:
    path: Path = settings.read().attempt_folder / "sidecar.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found
