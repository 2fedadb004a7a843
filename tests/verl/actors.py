"""
verl's own rollout server and training worker as Ray actors, with stand-ins for engine, model and transport.

A module that every actor process imports: so the plugin finds their classes there as it does in a real job.
"""

from typing import Any

import ray
import torch

from tests.verl import engine
from tests.verl.processes_job import furnish_worker
from tests.verl.standins import Replica, Workers

engine.install()

from verl.experimental.agent_loop.agent_loop import AgentLoopWorker  # noqa: E402 - after the stand-in for vLLM
from verl.experimental.separation.engine_workers import DetachActorWorker  # noqa: E402
from verl.workers.rollout.replica import RolloutMode  # noqa: E402
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer  # noqa: E402

from tests.verl.agents import furnish as furnish_agent_loop  # noqa: E402
from tests.verl.agents import through  # noqa: E402


class Server(vLLMHttpServer):  # type: ignore[misc]  # untyped
    """
    verl's server, without its launch.
    """

    def __init__(self, rank: int) -> None:
        engine.furnish(self, rank=rank, mode=RolloutMode.STANDALONE)
        self.engine.prompt = True

    async def update_weights(self, global_steps: int | None = None) -> None:
        """
        What verl's checkpoint engine worker beside an engine does once that has the weights.
        """
        if global_steps is not None:
            await self.set_global_steps(global_steps)

    async def execute_checkpoint_engine(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """
        Nothing.
        """
        return {}


class AgentLoop(AgentLoopWorker):  # type: ignore[misc]  # untyped
    """
    verl's agent loop worker, with a stand-in for the agent.
    """

    def __init__(self, config: Any, server: Any) -> None:
        furnish_agent_loop(self, config=config, client=through(server, config))


class Worker(DetachActorWorker):  # type: ignore[misc]  # untyped
    """
    verl's worker, with a matrix for a model.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        furnish_worker(self, rank=rank, world_size=world_size)
        weight = torch.rand(64, 64)
        self.actor.infer_batch = self.actor.train_mini_batch = lambda data: torch.mm(weight, weight)


class Group(Workers):
    """
    Stands in for verl's worker group: hands the calls on to one worker.
    """

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker

    def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> list[Any]:
        """
        The worker's part of the update.
        """
        return [self._worker.update_weights.remote(global_steps=global_steps, mode=mode)]

    def update_actor(self, batch: Any) -> dict[str, Any]:
        """
        On the worker; the metrics are made up.
        """
        ray.get(self._worker.update_actor.remote(None))
        return super().update_actor(batch)


class RemoteReplica(Replica):
    """
    Stands in for verl's replica: hands the calls on to its server, as verl's does.
    """

    def __init__(self, server: Any) -> None:
        self.workers = [server]
        self.servers = [server]
        self._server = server

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """
        On the server.
        """
        await self._server.abort_all_requests.remote(reject_request=reject_request)

    async def release_kv_cache(self) -> None:
        """
        On the server.
        """
        await self._server.release_kv_cache.remote()

    async def resume_kv_cache(self) -> None:
        """
        On the server.
        """
        await self._server.resume_kv_cache.remote()

    async def resume_generation(self) -> None:
        """
        On the server.
        """
        await self._server.resume_generation.remote()
