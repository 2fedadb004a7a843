"""
The engine manager.
"""

import asyncio

from stepscope_rollouter.replicas import EngineManager


class Replica:
    """
    Records, once.
    """

    def __init__(self) -> None:
        self.started = 0
        self.recording = False

    async def start_profiling(self) -> dict[str, str]:
        self.started += not self.recording
        self.recording = True
        return {"state": "recording", "reason": "", "window": "w"}

    async def stop_profiling(self) -> dict[str, str]:
        self.recording = False
        return {"state": "closing", "reason": "boundary", "window": "w"}


class Dead(Replica):
    """
    Its process has gone.
    """

    async def start_profiling(self) -> dict[str, str]:
        raise ConnectionError("the actor died")


class Silent(Replica):
    """
    Never answers.
    """

    async def start_profiling(self) -> dict[str, str]:
        await asyncio.Event().wait()
        return {}


def test_every_replica_answers_and_twice_is_once() -> None:
    """
    One answer per replica, in order; the second call starts nothing.
    """
    replicas = {1: Replica(), 0: Replica()}
    manager = EngineManager(replicas)

    async def body() -> list[dict[str, object]]:
        await manager.start_profiling()
        started = await manager.start_profiling()
        await manager.stop_profiling()
        return started

    found = asyncio.run(body())

    assert [
        {"replica": 0, "state": "recording", "reason": "", "window": "w"},
        {"replica": 1, "state": "recording", "reason": "", "window": "w"},
    ] == found
    assert [1, 1] == [replica.started for replica in replicas.values()]
    assert not any(replica.recording for replica in replicas.values())


def test_a_dead_or_silent_replica_is_an_answer() -> None:
    """
    The others record all the same.
    """
    replicas = {0: Dead(), 1: Silent(), 2: Replica()}
    found = asyncio.run(EngineManager(replicas, deadline=0.2).start_profiling())

    assert ["failed", "failed", "recording"] == [answer["state"] for answer in found]
    assert ["process_lost", "start_error", ""] == [answer["reason"] for answer in found]
