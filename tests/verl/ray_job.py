"""
A verl job of processes: ``FullyAsyncTrainer`` as the Ray actor that it is, and a worker, a server and an agent loop as
actors of theirs, the server on a node of its own.

``python -m tests.verl.ray_job STEPS MINI_BATCHES FOLDER``: started by verl's own driver code as far as that goes
without a GPU, with the real agents and sidecar of the environment. In the last step but one it loses the sidecar, in
the last one the server's node and the worker.
"""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
from omegaconf import OmegaConf
from ray.cluster_utils import Cluster
from verl import DataProto
from verl.checkpoint_engine import CheckpointEngineManager
from verl.experimental.fully_async_policy.detach_utils import RolloutSample
from verl.experimental.fully_async_policy.fully_async_trainer import FullyAsyncTrainer
from verl.experimental.fully_async_policy.message_queue import MessageQueue, MessageQueueClient
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

from tests.verl.actors import AgentLoop, Group, RemoteReplica, Server, Worker
from tests.verl.agents import OVERRIDES
from tests.verl.fully_async_job import SAMPLES, Idle, PaddedWorkers, configuration
from tests.verl.losses import Losses, Watch
from tests.verl.standins import BACKEND, PROMPT, RESPONSE, actor

VALIDATES = 2
"""After which update, and every so many."""

AGENT_LOOP = 3
"""The number in the name of the agent loop's actor, as verl gives them."""


class PaddedGroup(Group, PaddedWorkers):
    """
    The group, in the shape that this trainer hands batches over.
    """

    def __init__(self, worker: Any, losses: Any) -> None:
        super().__init__(worker)
        self._losses = losses

    def compute_log_prob(self, batch: Any) -> Any:
        """
        On the worker; the numbers are made up.
        """
        ray.get(self._worker.compute_log_prob.remote(None))
        return PaddedWorkers.compute_log_prob(self, batch)

    def update_actor(self, batch: Any) -> Any:
        """
        The same, and what is to be lost after it.
        """
        result = super().update_actor(batch)
        ray.get(self._losses.after.remote(self.updates))
        return result


class Rollouter(Idle):
    """
    Stands in for verl's rollouter: after each update its agent loop makes the samples of the next step, as verl's does.
    """

    def __init__(self, server: Any, loop: Any, queue: Any, counts: list[int]) -> None:
        self.async_rollout_manager = SimpleNamespace(agent_loop_workers=[loop])
        self._server = server
        self._queue = MessageQueueClient(queue)
        self._counts = counts
        self._made = 0

    def reset_staleness(self) -> dict[str, float]:
        """
        The replicas have resumed.
        """
        for _ in range(self._counts.pop(0) if self._counts else 0):
            asyncio.run(self._queue.put_sample(self._sample()))
        return {"fully_async/rollouter/active_time": 0.0}

    def do_validate(self) -> dict[str, float]:
        """
        On the same replica.
        """
        ray.get(self._server.generate.remote([1, 2, 3], {}, "validation"))
        return {"val": 1.0}

    def _sample(self) -> Any:
        self._made += 1
        uid = np.array([f"uid_sample_0_{self._made}"] * SAMPLES, dtype=object)
        told = {"uid": uid, "index": np.array([self._made] * SAMPLES), "raw_prompt": np.array([""] * SAMPLES)}
        (loop,) = self.async_rollout_manager.agent_loop_workers
        batch = ray.get(loop.generate_sequences.remote(DataProto(batch=None, non_tensor_batch=told)))
        batch.non_tensor_batch["uid"] = uid
        made = RolloutSample(full_batch=batch, sample_id="s", epoch=0, rollout_status={"count/total": 1})
        return ray.cloudpickle.dumps(made)  # type: ignore[no-untyped-call]  # Ray's


def furnish(trainer: Any, rollouter: Any, worker: Any, server: Any, losses: Any) -> None:
    """
    Give ``trainer`` what ``init_workers()`` and ``set_rollouter()`` would.
    """
    trainer.actor_wg = trainer.actor_rollout_wg = PaddedGroup(worker, losses)
    trainer.rollouter = rollouter
    trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
    trainer.checkpoint_manager = CheckpointEngineManager(
        config=SimpleNamespace(backend=BACKEND, custom_backend_module=None),
        actor_wg=trainer.actor_wg,
        replicas=[RemoteReplica(server)],
    )


def process_of(held: object) -> int:
    """
    In an actor: its process.
    """
    return os.getpid()


def settings(folder: Path, steps: int, mini_batches: int) -> Any:
    """
    verl's own configuration.
    """
    tokens = [f"data.max_prompt_length={PROMPT}", f"data.max_response_length={RESPONSE}"]
    scenario = {"mini_batches": mini_batches, "test_freq": VALIDATES, "overrides": [*OVERRIDES, *tokens]}
    return configuration(scenario, folder)


def train(cluster: Cluster, config: Any, steps: int, mini_batches: int) -> None:
    """
    As verl's ``FullyAsyncTaskRunner`` does it. The server's node comes last: so nobody else is on it.
    """
    served: Any = ray.remote(Server)
    server = served.options(num_cpus=0, max_concurrency=16, resources={"replica": 1}).remote(0)
    worker = actor(Worker, 0, 1)
    loops: Any = ray.remote(AgentLoop)
    loop = loops.options(num_cpus=0, name=f"agent_loop_worker_{AGENT_LOOP}_standin").remote(config, server)
    queue = MessageQueue.remote(None, 1000)
    rollouter = actor(Rollouter, server, loop, queue, [mini_batches] * steps)
    first = (steps - 2) * mini_batches
    losses: Any = ray.remote(Losses).options(num_cpus=0, max_concurrency=4).remote()
    watch = Watch(losses)
    pid = ray.get(worker.__ray_call__.remote(process_of))
    watch.on(first + 1, watch.kill_sidecar)
    watch.on(first + mini_batches, watch.sidecar_is_back)
    nodes: list[Any] = []
    watch.on(first + mini_batches + 1, lambda: cluster.remove_node(nodes.pop(), allow_graceful=False))
    watch.on(first + mini_batches + 2, lambda: os.kill(pid, signal.SIGKILL))
    trainer = FullyAsyncTrainer.options(num_cpus=0).remote(
        config=config, tokenizer=None, role_worker_mapping={}, resource_pool_manager=None
    )
    ray.get(trainer.__ray_call__.remote(furnish, rollouter, worker, server, losses))
    ray.get(trainer.set_total_train_steps.remote(steps))
    ray.get(trainer.set_message_queue_client.remote(MessageQueueClient(queue)))
    ray.get(trainer.load_checkpoint.remote())
    ray.get(losses.expect.remote(watch.moments))
    ray.get([held.__ray_call__.remote(process_of) for held in (loop, queue, rollouter)])
    nodes.append(cluster.add_node(num_cpus=1, resources={"replica": 1}))
    watching = threading.Thread(target=watch.run)
    watching.start()
    try:
        ray.get(trainer._fit_update_weights.remote())
        ray.get(trainer.fit.remote())
    except ray.exceptions.RayError as error:
        # Without a worker verl cannot go on, and says so.
        sys.stdout.write(f"ended by {type(error).__name__}, lost {watch.happened}\n")
    finally:
        ray.get(losses.over.remote())
        watching.join()


def main(steps: int, mini_batches: int, folder: Path) -> None:
    """
    As verl's ``run_ppo()`` does it, on a Ray of two nodes.
    """
    config = settings(folder, steps, mini_batches)
    runtime_env = OmegaConf.to_container(OmegaConf.create(get_ppo_ray_runtime_env(config)))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 64, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=True, runtime_env=runtime_env)
        train(cluster, config, steps, mini_batches)
    finally:
        ray.shutdown()
        cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
