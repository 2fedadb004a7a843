"""
The engine manager: one call that starts or stops the profiler of every replica, and an answer from each.

It owns nothing but the list of replicas. Each replica decides by its own window agent, so that a window opened here and
one opened by the selection are the same thing, and asking twice is asking once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

DEADLINE = 30.0
"""Stopping a busy profiler takes seconds; a replica that is silent for longer is reported, not waited for."""


class Profilable(Protocol):
    """
    A replica, wherever it runs.
    """

    def start_profiling(self) -> Awaitable[Mapping[str, str]]:
        """
        Record from now on; says ``state``, ``reason`` and ``window``.
        """

    def stop_profiling(self) -> Awaitable[Mapping[str, str]]:
        """
        Stop recording; says the same.
        """


class EngineManager:
    """
    Fans profiling out over ``replicas``. A replica that fails or is silent is an answer, not an exception.
    """

    def __init__(self, replicas: Mapping[int, Profilable], *, deadline: float = DEADLINE) -> None:
        """
        Wait ``deadline`` seconds for each answer.
        """
        self._replicas = dict(replicas)
        self._deadline = deadline

    async def start_profiling(self) -> list[dict[str, object]]:
        """
        Every replica records from now on. Returns ``replica``, ``state``, ``reason``, ``window`` for each.
        """
        return await self._ask(lambda replica: replica.start_profiling(), silent="start_error")

    async def stop_profiling(self) -> list[dict[str, object]]:
        """
        No replica records any longer.
        """
        return await self._ask(lambda replica: replica.stop_profiling(), silent="stop_timeout")

    async def _ask(
        self, call: Callable[[Profilable], Awaitable[Mapping[str, str]]], *, silent: str
    ) -> list[dict[str, object]]:
        async def one(number: int, replica: Profilable) -> dict[str, object]:
            answer: Mapping[str, str]
            try:
                answer = await asyncio.wait_for(_awaited(call(replica)), self._deadline)
            except TimeoutError:
                answer = {"state": "failed", "reason": silent, "window": ""}
            except Exception:  # noqa: BLE001 - a dead replica is an answer: the others still have to be asked
                answer = {"state": "failed", "reason": "process_lost", "window": ""}
            return {"replica": number, **answer}

        return await asyncio.gather(*(one(number, replica) for number, replica in sorted(self._replicas.items())))


async def _awaited(answer: Awaitable[Mapping[str, str]]) -> Mapping[str, str]:
    return await answer
