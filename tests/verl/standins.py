"""
What a GPU and an engine would be in a verl job: workers, replicas, generation, the transport of weights.

Everything else in these tests is verl's own. Each stand-in notes what it was asked, and can be told to fail.
"""

import functools
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

BACKEND = "standin"
"""The name under which verl's registry finds the transport."""

PROMPT, RESPONSE = 3, 4
"""Tokens of every prompt and response."""


class OutOfMemoryError(RuntimeError):
    """
    What a worker fails with when it is told to.
    """


@CheckpointEngineRegistry.register(BACKEND)
class Transport(CheckpointEngine):  # type: ignore[misc]  # untyped
    """
    Stands in for NCCL: there is nothing to send.
    """

    @classmethod
    def build_topology(cls, trainers: int, rollouts: int, metadata: Any) -> tuple[dict[str, list[int]], dict[str, Any]]:
        """
        One entry per rank, as verl demands.
        """
        return {"rank": list(range(trainers))}, {"rank": list(range(rollouts))}

    def prepare(self) -> dict[str, Any]:
        """
        Nothing.
        """
        return {}

    def init_process_group(self, **kwargs: Any) -> None:
        """
        Nothing.
        """

    def finalize(self) -> None:
        """
        Nothing.
        """

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:
        """
        Nothing.
        """

    async def receive_weights(self, global_steps: int | None = None) -> Any:
        """
        Nothing.
        """


class Noting:
    """
    What verl's own profiling would be asked of.
    """

    asked: list[str]

    def start_profile(self, **kwargs: Any) -> None:
        """
        verl's own profiler: note it.
        """
        self.asked.append("start_profile")

    def stop_profile(self, **kwargs: Any) -> None:
        """
        verl's own profiler: note it.
        """
        self.asked.append("stop_profile")


class Workers(Noting):
    """
    Stands in for the worker group of the actor: the model, its log-probabilities and its updates.
    """

    world_size = 1

    def __init__(self, *, fails_in: int | None = None) -> None:
        """
        The ``fails_in``-th update of the actor fails.
        """
        self._dispatch_info = {"actor": [0]}
        self._fails_in = fails_in
        self.updates = 0
        self.version = 0
        self.asked: list[str] = []

    def compute_log_prob(self, batch: Any) -> Any:
        """
        Zeros, where the model would put them.
        """
        self.asked.append("compute_log_prob")
        rows = [
            {"log_probs": torch.zeros(PROMPT + RESPONSE), "entropy": torch.zeros(PROMPT + RESPONSE)} for _ in batch.keys
        ]
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=list_of_dict_to_tensordict(rows))
        return batch

    def update_actor(self, batch: Any) -> dict[str, Any]:
        """
        Metrics of a mini-batch.
        """
        self.updates += 1
        self.asked.append("update_actor")
        if self.updates == self._fails_in:
            raise OutOfMemoryError("stand-in for CUDA out of memory")
        return {"metrics": {"pg_loss": [0.0], "grad_norm": [1.0], "mfu": 0.0}}

    def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> list[Any]:
        """
        The replicas have them.
        """
        self.asked.append(f"update_weights({global_steps}, {mode})")
        if global_steps is not None:
            self.version = global_steps
        return [ray.put({})]

    def execute_checkpoint_engine(self, *args: Any, **kwargs: Any) -> list[Any]:
        """
        Nothing.
        """
        return [ray.put({})]

    def save_checkpoint(self, folder: str, *args: Any, **kwargs: Any) -> None:
        """
        Make the folder, as a worker does.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.asked.append("save_checkpoint")

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """
        Note it.
        """
        self.asked.append("load_checkpoint")

    def save_model_to_cpu(self, number: int) -> None:
        """
        Nothing.
        """

    restore_model_from_cpu = clear_cpu_model = save_model_to_cpu


class Receiver:
    """
    Stands in for verl's checkpoint engine worker beside an engine: it says which version has come.
    """

    def __init__(self, server: Any = None) -> None:
        self._server = server

    async def update_weights(self, global_steps: int | None = None) -> None:
        """
        As verl's server adapter does once the engine has the weights.
        """
        if self._server is not None and global_steps is not None:
            await self._server.set_global_steps.remote(global_steps)

    async def execute_checkpoint_engine(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """
        Nothing.
        """
        return {}


class Handle:
    """
    Stands in for the handle of a server's actor: notes the functions that are sent to it.
    """

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.__ray_call__ = self

    def remote(self, function: Any, *told: Any) -> None:
        """
        Note it.
        """
        self.sent.append(function.__name__)


class Replica:
    """
    Stands in for a rollout replica, as verl's checkpoint manager drives it.
    """

    def __init__(self) -> None:
        self.workers = [receiver()]
        self.servers: list[Any] = [Handle()]

    async def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """
        Nothing.
        """

    abort_all_requests = release_kv_cache = resume_kv_cache = resume_generation = sleep = wake_up = _nothing


class Servers(Noting):
    """
    Stands in for the manager of a pool of servers.
    """

    def __init__(self) -> None:
        self.rollout_replicas = [Replica()]
        self.server_addresses: list[str] = []
        self.server_handles: list[object] = []
        self.global_load_balancer = balancer()
        self.asked: list[str] = []


class Balancer:
    """
    Stands in for verl's load balancer.
    """

    def add_servers(self, servers: object) -> None:
        """
        Nothing.
        """

    def remove_servers(self, servers: object) -> None:
        """
        Nothing.
        """


def actor(kind: type, *arguments: Any) -> Any:
    """
    An actor of ``kind`` that takes up no processor.
    """
    return ray.remote(num_cpus=0)(kind).remote(*arguments)


@functools.cache
def receiver() -> Any:
    """
    One for all replicas: an actor takes seconds to start.
    """
    return actor(Receiver)


@functools.cache
def balancer() -> Any:
    """
    One for all pools.
    """
    return actor(Balancer)


class Generation:
    """
    Stands in for agent loops and engines: every prompt has its responses at once, under the version published last.
    """

    def __init__(self, workers: Workers, *, samples: int) -> None:
        self._workers = workers
        self._samples = samples

    def generate_sequences(self, prompts: TensorDict) -> None:
        """
        Put into the queue what agent loops would.
        """
        validate = bool(prompts["validate"]) if "validate" in prompts else False
        step, uids = prompts["global_steps"], list(prompts["uid"])
        partition = "val" if validate else "train"
        for uid in uids:
            keys = [f"{uid}_{number}_0" for number in range(1 if validate else self._samples)]
            tq.kv_batch_put(
                keys=keys,
                partition_id=partition,
                fields=list_of_dict_to_tensordict([self._trajectory(uid, number) for number in range(len(keys))]),
                tags=[self._tag(int(step)) for _ in keys],
            )
            tq.kv_put(key=uid, partition_id=partition, tag={"status": "finished"})

    def _trajectory(self, uid: str, number: int) -> dict[str, Any]:
        mask = torch.ones(RESPONSE, dtype=torch.int64)
        tokens = torch.arange(1, PROMPT + RESPONSE + 1)
        return {
            "uid": uid,
            "session_id": number,
            "prompts": tokens[:PROMPT],
            "responses": tokens[PROMPT:],
            "input_ids": tokens,
            "position_ids": torch.arange(PROMPT + RESPONSE),
            "response_mask": mask,
            "loss_mask": mask,
            "rm_scores": torch.full((RESPONSE,), float(number % 2)),
            "rollout_log_probs": torch.zeros(RESPONSE),
            "num_turns": 1,
            "data_source": "standin",
            "reward_model": {"ground_truth": "1"},
            "extra_fields": {"reward_extra_info": {}},
            "multi_modal_inputs": {},
        }

    def _tag(self, step: int) -> dict[str, Any]:
        return {
            "status": "success",
            "prompt_len": PROMPT,
            "response_len": RESPONSE,
            "seq_len": PROMPT + RESPONSE,
            "global_steps": step,
            "min_global_steps": self._workers.version,
            "max_global_steps": self._workers.version,
        }
