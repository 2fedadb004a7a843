"""
The rank of a replica in the run: those that have devices of their own come first, then those on the trainer's.

verl counts the other way round, and a replica on the trainer's devices sleeps while training: rank 0, which is recorded
by default, would generate nothing. Only the process that starts both kinds knows how many there are, so it tells their
servers, and waits until they know: before any of them hears of a version. Owns both ends of it.
"""

import asyncio
import functools
from collections.abc import Iterable
from typing import Any

from stepscope.complaints import complaints
from stepscope.integrations.verl.phases import Function

SHARING, APART = "hybrid", "standalone"
"""verl's ``rollout_mode``: on the trainer's devices, or on its own."""

ANSWER = 10.0
"""Seconds that the start of a job waits for its servers to take their ranks: they have just said their addresses."""


class Started:
    """
    The end of the process that starts the replicas.
    """

    def __init__(self) -> None:
        self._sharing: list[Any] = []

    async def count(self, replicas: Iterable[Any]) -> None:
        """
        ``replicas`` have been started. verl starts those on the trainer's devices first, in the same process.
        """
        replicas = list(replicas)
        modes = {getattr(getattr(replica, "rollout_mode", None), "value", "") for replica in replicas}
        if modes == {SHARING}:
            self._sharing = replicas
        elif modes == {APART}:
            sharing, self._sharing = self._sharing, []
            if sharing:
                await _tell([*replicas, *sharing])


class Told:
    """
    The server's end.
    """

    def __init__(self) -> None:
        self.rank: int | None = None
        """What it has been told; None where verl's own is the one."""


started = Started()
told = Told()


def starts(original: Function) -> Function:
    """
    ``LLMServerManager._initialize_llm_servers(start_rank)``: once for each kind of replica that the job has.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = await original(self, *args, **kwargs)
        try:
            await started.count(self.rollout_replicas)
        except Exception as error:  # noqa: BLE001 - the replicas keep the ranks that verl gave them
            complaints.fault("telling replicas their ranks", error)
        return result

    return wrapper


def take(server: object, rank: int) -> None:  # noqa: ARG001 - Ray hands the actor over
    """
    In a server: its replica's rank in the run.
    """
    told.rank = rank


def rank_of(server: Any) -> int | None:
    """
    In a server: the rank to register with; None where verl says none.
    """
    try:
        return int(server.replica_rank) if told.rank is None else told.rank
    except Exception as error:  # noqa: BLE001 - verl's attributes are not ours; the server stays out
        complaints.fault("the rank of a replica", error)
        return None


async def _tell(replicas: Iterable[Any]) -> None:
    answers = [
        server.__ray_call__.remote(take, rank)
        for rank, replica in enumerate(replicas)
        for server in getattr(replica, "servers", ())
    ]
    await asyncio.wait_for(asyncio.gather(*answers), ANSWER)
