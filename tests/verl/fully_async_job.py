"""
A job of verl's ``FullyAsyncTrainer``: its own configuration, ``fit()``, queue and checkpoint manager.

``python -m tests.verl.fully_async_job SCENARIOS TARGET`` runs the scenarios of a JSON file one after another. The class
is a Ray actor's; here it is made in this process, from the class that Ray would send, so that a stand-in for our agent
can be looked at. :mod:`tests.verl.ray_job` has it as the actor that it is.
"""

import asyncio
import json
import sys
import traceback
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
import torch
import verl
from hydra import compose, initialize_config_dir
from tensordict import TensorDict
from verl import DataProto
from verl.checkpoint_engine import CheckpointEngineManager
from verl.experimental.fully_async_policy.detach_utils import RolloutSample
from verl.experimental.fully_async_policy.fully_async_trainer import FullyAsyncTrainer
from verl.experimental.fully_async_policy.message_queue import MessageQueue, MessageQueueClient
from verl.utils import tensordict_utils as tu

from stepscope import registration
from tests.verl.capture import captured
from tests.verl.standins import BACKEND, PROMPT, RESPONSE, Replica, Workers, actor, receiver

CONFIGURATION = "experimental/fully_async_policy/config"
"""A folder of verl's that is no package."""

SAMPLES = 2
"""Trajectories of each prompt; a mini-batch is one prompt."""


class Idle:
    """
    Stands in for verl's rollouter where the trainer only asks how far it is.
    """

    def get_total_produced_samples(self) -> int:
        """
        A number.
        """
        return 0

    def get_completed_steps(self) -> int:
        """
        A number.
        """
        return 0


class Rollouter(Idle):
    """
    Stands in for verl's rollouter: what the trainer asks of it.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def reset_staleness(self) -> dict[str, float]:
        """
        The rollouter goes on.
        """
        self.asked.append("reset_staleness")
        return {"fully_async/rollouter/active_time": 0.0}

    def do_validate(self) -> dict[str, float]:
        """
        Note it.
        """
        self.asked.append("do_validate")
        return {"val": 1.0}

    def save_checkpoint(self, folder: str) -> None:
        """
        Note it.
        """
        self.asked.append("save_checkpoint")

    def _start_profiling(self) -> None:
        self.asked.append("start_profiling")

    def _stop_profiling(self) -> None:
        self.asked.append("stop_profiling")

    def log(self) -> list[str]:
        """
        What was asked since the last time.
        """
        asked, self.asked = self.asked, []
        return asked


class PaddedWorkers(Workers):
    """
    The same as :class:`Workers`, in the shape that this trainer hands batches over.
    """

    def compute_log_prob(self, batch: Any) -> Any:
        """
        Zeros for every token.
        """
        self.asked.append("compute_log_prob")
        tokens = batch["input_ids"]
        zeros = torch.nested.nested_tensor_from_jagged(torch.zeros(tokens.values().shape[0]), offsets=tokens.offsets())
        found = TensorDict({"log_probs": zeros, "entropy": zeros}, batch_size=tokens.shape[0])
        tu.assign_non_tensor(found, metrics={"mfu": 0.0})
        return found

    def update_actor(self, batch: Any) -> Any:
        """
        Metrics of a mini-batch.
        """
        found = TensorDict({}, batch_size=[])
        tu.assign_non_tensor(found, **super().update_actor(batch))
        return found


def configuration(scenario: dict[str, Any], folder: Path) -> Any:
    """
    verl's own, with the overrides of a user.
    """
    overrides = [
        f"async_training.trigger_parameter_sync_step={scenario.get('mini_batches', 1)}",
        "actor_rollout_ref.hybrid_engine=False",
        "actor_rollout_ref.actor.ppo_mini_batch_size=1",
        f"actor_rollout_ref.rollout.n={SAMPLES}",
        f"actor_rollout_ref.rollout.checkpoint_engine.backend={BACKEND}",
        "algorithm.adv_estimator=grpo",
        "algorithm.rollout_correction.bypass_mode=False",
        "trainer.balance_batch=False",
        f"trainer.save_freq={scenario.get('save_freq', -1)}",
        f"trainer.test_freq={scenario.get('test_freq', 100)}",
        f"trainer.resume_mode={'auto' if scenario.get('resume') else 'disable'}",
        f"trainer.default_local_dir={folder}",
        "trainer.logger=[]",
        *scenario.get("overrides", []),
    ]
    with initialize_config_dir(str(Path(verl.__file__).parent / CONFIGURATION), version_base=None):
        return compose("fully_async_ppo_trainer", overrides)


def sample(version: int) -> bytes:
    """
    What the rollouter puts into the queue: a prompt's trajectories, generated under ``version``.
    """
    shape = (SAMPLES, PROMPT + RESPONSE)
    responses = torch.ones(SAMPLES, RESPONSE, dtype=torch.int64)
    batch = DataProto.from_dict(
        tensors={
            "prompts": torch.ones(SAMPLES, PROMPT, dtype=torch.int64),
            "responses": responses,
            "input_ids": torch.ones(shape, dtype=torch.int64),
            "attention_mask": torch.ones(shape, dtype=torch.int64),
            "position_ids": torch.arange(shape[1]).repeat(SAMPLES, 1),
            "response_mask": responses,
            "rm_scores": torch.tensor([[float(number)] * RESPONSE for number in range(SAMPLES)]),
            "rollout_log_probs": torch.zeros(SAMPLES, RESPONSE),
        },
        non_tensors={
            "uid": np.array([uuid.uuid4().hex] * SAMPLES, dtype=object),
            "min_global_steps": np.array([version] * SAMPLES, dtype=object),
            "max_global_steps": np.array([version] * SAMPLES, dtype=object),
        },
        meta_info={"metrics": [{"generate_sequences": 0.1, "tool_calls": 0.0}] * SAMPLES},
    )
    made = RolloutSample(full_batch=batch, sample_id="s", epoch=0, rollout_status={"count/total": 1})
    return ray.cloudpickle.dumps(made)  # type: ignore[no-any-return, no-untyped-call]  # Ray's


def furnish(trainer: Any, rollouter: Any, fails_in: int | None) -> None:
    """
    Give ``trainer`` its stand-ins, where ``init_workers()`` and ``set_rollouter()`` would give it the real ones.
    """
    trainer.actor_wg = trainer.actor_rollout_wg = PaddedWorkers(fails_in=fails_in)
    trainer.rollouter = rollouter
    trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
    config = SimpleNamespace(backend=BACKEND, custom_backend_module=None)
    trainer.checkpoint_manager = CheckpointEngineManager(config=config, actor_wg=trainer.actor_wg, replicas=[Replica()])


def run(scenario: dict[str, Any], folder: Path, queue: Any, rollouter: Any) -> dict[str, Any]:
    """
    What verl's task runner does with the trainer, from its construction to the end of ``fit()``.
    """
    config = configuration(scenario, folder)
    client = MessageQueueClient(queue)
    asyncio.run(fill(client, scenario))
    arguments: dict[str, Any] = {"tokenizer": None, "role_worker_mapping": {}, "resource_pool_manager": None}
    total = scenario.get("total_steps", scenario.get("steps", 3))
    failure, asked, sent = "", [], []
    try:
        trainer = FullyAsyncTrainer.__ray_metadata__.modified_class(config=config, **arguments)
        furnish(trainer, rollouter, scenario.get("fails_in"))
        asked = trainer.actor_rollout_wg.asked
        sent = trainer.checkpoint_manager.replicas[0].servers[0].sent
        trainer.set_total_train_steps(total)
        trainer.set_message_queue_client(client)
        asyncio.run(_train(trainer, scenario))
    except Exception as error:  # noqa: BLE001 - the scenario says what is to come
        failure = type(error).__name__
        if failure != scenario.get("failure"):
            traceback.print_exc()
    registration.shutdown()
    return {"failure": failure, "workers": asked, "servers": ray.get(rollouter.log.remote()), "sent": sent}


async def fill(client: MessageQueueClient, scenario: dict[str, Any]) -> None:
    """
    What the rollouter would put into the queue, to its end.
    """
    await client.clear_queue()
    per_step, first = scenario.get("mini_batches", 1), scenario.get("first", 0)
    for number in range(scenario.get("samples", scenario.get("steps", 3) * per_step)):
        # One version behind, as asynchronous training is.
        await client.put_sample(sample(max(0, first + number // per_step - 1)))
    await client.put_sample(None)


async def _train(trainer: Any, scenario: dict[str, Any]) -> None:
    await trainer.load_checkpoint()
    await trainer._fit_update_weights()
    if scenario.get("val_before_train"):
        await trainer._fit_validate(True)
    await trainer.fit()


def main(source: Path, target: Path) -> None:
    """
    Run the scenarios of ``source``, and write to ``target`` what became of them.
    """
    ray.init(address="local", num_cpus=64, include_dashboard=False, log_to_driver=False, configure_logging=False)
    found = {}
    try:
        rollouter, queue = actor(Rollouter), MessageQueue.remote(None, 1000)
        receiver()
        for name, scenario in json.loads(source.read_text()).items():
            folder = Path(scenario.get("folder", source.parent / name))
            with captured(scenario) as result:
                outcome = run(scenario, folder, queue, rollouter)
            found[name] = {**outcome, **result}
    finally:
        ray.shutdown()
    target.write_text(json.dumps(found, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
