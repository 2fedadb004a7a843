"""
The start of a verl job's replicas: verl's own managers of servers, those of V1 and of fully_async.

``python -m tests.verl.replicas_job SCENARIOS TARGET``: a replica is a stand-in whose server is a Ray actor without an
engine, and which replica gets which rank is verl's. What is written is what each server would register with.
"""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from omegaconf import OmegaConf
from verl.experimental.fully_async_policy.fully_async_rollouter import FullyAsyncLLMServerManager
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.replica import RolloutMode

from stepscope.integrations.verl import replicas
from tests.verl.standins import actor


class Server:
    """
    Stands in for verl's server: it knows the rank that verl gave its replica.
    """

    def __init__(self, rank: int) -> None:
        self.replica_rank = rank


class Replica:
    """
    Stands in for verl's replica: its server is an actor on no device.
    """

    def __init__(self, replica_rank: int, **told: Any) -> None:
        self.replica_rank = replica_rank
        self.rollout_mode: RolloutMode | None = None
        self._server_handle = actor(Server, replica_rank)
        self.servers = [self._server_handle]
        self._server_address = f"replica-{replica_rank}"

    async def init_hybrid(self, worker_group: object) -> None:
        """
        On the trainer's devices.
        """
        self.rollout_mode = RolloutMode.HYBRID

    async def init_standalone(self) -> None:
        """
        On devices of its own.
        """
        self.rollout_mode = RolloutMode.STANDALONE


class Manager(LLMServerManager):  # type: ignore[misc]  # untyped
    """
    verl's, with another kind of replica.
    """

    rollout_replica_class = Replica


class FullyAsyncManager(FullyAsyncLLMServerManager):  # type: ignore[misc]  # untyped
    """
    The same.
    """

    rollout_replica_class = Replica


def configuration(apart: int) -> Any:
    """
    What a manager reads of a job's, whose replicas have one device each.
    """
    rollout = {
        "name": "vllm",
        "nnodes": apart,
        "n_gpus_per_node": 1,
        "tensor_model_parallel_size": 1,
        "data_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "prometheus": {"enable": False},
        "disable_log_stats": True,
        "disaggregation": {"enabled": False},
    }
    return OmegaConf.create({"actor_rollout_ref": {"rollout": rollout, "model": {}}})


async def v1(config: Any, sharing: Any) -> list[Any]:
    """
    As ``PPOTrainer._setup()`` and that of ``separate_async`` start them.
    """
    started: list[Any] = []
    if sharing is not None:
        manager = Manager(config=config, worker_group=sharing)
        await manager._initialize_llm_servers()
        started += manager.rollout_replicas
    if config.actor_rollout_ref.rollout.nnodes:
        manager = Manager(config=config, start_rank=len(started))
        await manager._initialize_llm_servers()
        started += manager.rollout_replicas
    return started


async def fully_async(config: Any, sharing: Any) -> list[Any]:
    """
    As its rollouter starts them.
    """
    manager = FullyAsyncManager(config=config, worker_group=sharing)
    await manager._initialize_llm_servers()
    return [*manager.hybrid_replicas.values(), *manager.rollout_replicas]


def run(scenario: dict[str, Any]) -> list[tuple[str, int, int]]:
    """
    Of each replica what kind it is, the rank that verl gave it, and the one that its server would register with.
    """
    config = configuration(scenario["apart"])
    sharing = SimpleNamespace(world_size=scenario["sharing"]) if scenario["sharing"] else None
    started = asyncio.run({"v1": v1, "fully_async": fully_async}[scenario["job"]](config, sharing))
    ranks = ray.get([replica.servers[0].__ray_call__.remote(replicas.rank_of) for replica in started])
    for replica in started:
        ray.kill(replica.servers[0])
    return [
        (str(replica.rollout_mode.value), replica.replica_rank, rank)
        for replica, rank in zip(started, ranks, strict=True)
    ]


def main(source: Path, target: Path) -> None:
    """
    Run the scenarios of ``source``, and write to ``target`` what became of them.
    """
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        found = {name: {"ranks": run(scenario)} for name, scenario in json.loads(source.read_text()).items()}
    finally:
        ray.shutdown()
    target.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
