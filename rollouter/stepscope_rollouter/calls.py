"""
Actors of Ray, called as the objects that they run: whoever gets one of these need not know where it lives.
"""

from typing import Any

from stepscope_rollouter.queue import Claim
from stepscope_rollouter.samples import Group


class QueueCalls:
    """
    The sample queue, called as an actor.
    """

    def __init__(self, actor: Any) -> None:
        """
        Call ``actor``.
        """
        self._actor = actor

    async def claim(self, replica: int, *, version: int, count: int) -> Claim:
        """
        Prompts to generate for.
        """
        claim: Claim = await self._actor.claim.remote(replica, version=version, count=count)
        return claim

    async def room(self, replica: int, *, version: int) -> None:
        """
        Returns when a claim can succeed.
        """
        await self._actor.room.remote(replica, version=version)

    async def put(self, group: Group) -> None:
        """
        Hand samples over.
        """
        await self._actor.put.remote(group)

    async def discard(self, number: int, *, replica: int, samples: int) -> None:
        """
        Report samples dropped at the replica.
        """
        await self._actor.discard.remote(number, replica=replica, samples=samples)


class ReplicaCalls:
    """
    A replica's profiling, called as an actor.
    """

    def __init__(self, actor: Any) -> None:
        """
        Call ``actor``.
        """
        self._actor = actor

    async def start_profiling(self) -> dict[str, str]:
        """
        Record from now on.
        """
        answer: dict[str, str] = await self._actor.start_profiling.remote()
        return answer

    async def stop_profiling(self) -> dict[str, str]:
        """
        Stop recording.
        """
        answer: dict[str, str] = await self._actor.stop_profiling.remote()
        return answer
