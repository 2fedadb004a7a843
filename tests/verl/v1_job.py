"""
A job of verl's V1 trainer ``separate_async``, in this process: its own configuration, loop, sampler and queue.

``python -m tests.verl.v1_job SCENARIOS`` runs the scenarios of a JSON file one after another, each with a stand-in for
our agent, and writes what was asked of that and which spans came. With ``"agent": "real"`` it is the real one.
"""

import json
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
import transfer_queue as tq
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.checkpoint_engine import CheckpointEngineManager
from verl.trainer.ppo.v1 import PPOTrainerSeparateAsync
from verl.utils.dataset.rl_dataset import collate_fn

from stepscope import registration
from tests.verl.agents import OVERRIDES, Agents
from tests.verl.capture import captured
from tests.verl.standins import BACKEND, Generation, Servers, Workers

MINI_BATCH, SAMPLES = 1, 2
"""Prompts of a mini-batch, and trajectories of each prompt."""


class Job(PPOTrainerSeparateAsync):  # type: ignore[misc]  # untyped
    """
    verl's trainer; only the part of its set-up is replaced that starts GPU workers and engines.
    """

    fails_in: int | None = None

    def _setup(self) -> None:
        self._init_dataloader()
        self._init_dump_executor()
        self.tokenizer = SimpleNamespace(eos_token_id=0, pad_token_id=0, decode=lambda ids, **_: str(list(ids)))
        self.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        self.ref_in_actor = False
        self.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
        self.actor_rollout_wg = Workers(fails_in=self.fails_in)
        self.llm_server_manager = Servers()
        self.standalone_server_manager = Servers()
        self.checkpoint_manager = self._manager("naive", self.llm_server_manager)
        self.checkpoint_manager.sleep_replicas()
        self._load_checkpoint()
        self.standalone_checkpoint_manager = self._manager(BACKEND, self.standalone_server_manager)
        self.current_mode = type(self)._hybrid_mode()
        self.add_replicas_to_balancer()

    @staticmethod
    def _hybrid_mode() -> Any:
        from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode

        return HybridEngineMode.ROLLOUT

    def _manager(self, backend: str, servers: Servers) -> CheckpointEngineManager:
        config = SimpleNamespace(backend=backend, custom_backend_module=None)
        return CheckpointEngineManager(config=config, actor_wg=self.actor_rollout_wg, replicas=servers.rollout_replicas)

    def _init_dataloader(self) -> None:
        prompts = [
            {"raw_prompt": [{"role": "user", "content": str(number)}], "data_source": "standin", "index": number}
            for number in range(64)
        ]
        self.train_dataloader = StatefulDataLoader(prompts, batch_size=1, collate_fn=collate_fn)
        self.train_dataloader_it = None
        self.val_dataloader = StatefulDataLoader(prompts[:1], batch_size=1, collate_fn=collate_fn)
        self.steps_per_epoch = 64
        self.total_training_steps = self.config.trainer.total_training_steps
        OmegaConf.update(self.config, "data.gen_batch_size", 1, force_add=True)


def configuration(scenario: dict[str, Any], folder: Path) -> Any:
    """
    verl's own, with the overrides of a user.
    """
    per_step = scenario.get("mini_batches", 1)
    overrides = [
        "trainer.v1.trainer_mode=separate_async",
        f"trainer.v1.separate_async.parameter_sync_step={per_step}",
        f"data.train_batch_size={per_step * MINI_BATCH}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={MINI_BATCH}",
        f"actor_rollout_ref.rollout.n={SAMPLES}",
        "actor_rollout_ref.rollout.nnodes=1",
        "actor_rollout_ref.rollout.n_gpus_per_node=1",
        f"actor_rollout_ref.rollout.checkpoint_engine.backend={BACKEND}",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "algorithm.adv_estimator=grpo",
        f"trainer.total_training_steps={scenario.get('steps', 4)}",
        f"trainer.save_freq={scenario.get('save_freq', -1)}",
        f"trainer.test_freq={scenario.get('test_freq', -1)}",
        f"trainer.val_before_train={scenario.get('val_before_train', False)}",
        f"trainer.resume_mode={'auto' if scenario.get('resume') else 'disable'}",
        f"trainer.default_local_dir={folder}",
        "trainer.logger=[]",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        *(OVERRIDES if scenario.get("agents") else ()),
        *scenario.get("overrides", []),
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides)


def run(scenario: dict[str, Any], folder: Path) -> dict[str, Any]:
    """
    One run of the trainer, from its construction to the end of ``fit()``.
    """
    config = configuration(scenario, folder)
    config.transfer_queue.enable = True
    # The first scenario starts it. Its actors take seconds, so the others find it, emptied.
    tq.init(config.transfer_queue)
    failure, job, agents = "", None, None
    try:
        Job.fails_in = scenario.get("fails_in")
        job = Job(config)
        job.replay_buffer.poll_interval = 0.01
        job.init()
        if scenario.get("agents"):
            agents = Agents(job.actor_rollout_wg, config=config)
        job.fit(agents or Generation(job.actor_rollout_wg, samples=SAMPLES))
    except Exception as error:  # noqa: BLE001 - the scenario says what is to come
        failure = type(error).__name__
        if failure != scenario.get("failure"):
            traceback.print_exc()
    finally:
        if agents is not None:
            agents.close()
        for partition, items in tq.kv_list().items():
            if items:
                tq.kv_clear(keys=list(items), partition_id=partition)
    registration.shutdown()
    return {
        "failure": failure,
        "requests": agents.server.engine.requests if agents else [],
        "workers": job.actor_rollout_wg.asked if job else [],
        "servers": job.standalone_server_manager.asked if job else [],
        "sent": job.standalone_server_manager.rollout_replicas[0].servers[0].sent if job else [],
    }


def main(source: Path, target: Path) -> None:
    """
    Run the scenarios of ``source``, and write to ``target`` what became of them.
    """
    ray.init(address="local", num_cpus=64, include_dashboard=False, log_to_driver=False, configure_logging=False)
    found = {}
    try:
        for name, scenario in json.loads(source.read_text()).items():
            folder = Path(scenario.get("folder", source.parent / name))
            with captured(scenario) as result:
                outcome = run(scenario, folder)
            found[name] = {**outcome, **result}
    finally:
        tq.close()
        ray.shutdown()
    target.write_text(json.dumps(found, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
