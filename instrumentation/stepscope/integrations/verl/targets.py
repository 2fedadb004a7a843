"""
The one table of what of verl is touched: in which module, which function, and what it becomes.

A row costs nothing until verl imports its module. What a newer verl lacks is left out and said; see
:mod:`stepscope.integrations.verl.probe`. Read from 0.9.1.
"""

from dataclasses import dataclass, replace

from stepscope import names
from stepscope.integrations.verl import (
    agent_loop,
    driver,
    fully_async,
    minibatch,
    replicas,
    server,
    sync,
    trainer,
    worker,
)
from stepscope.integrations.verl.phases import Wrap, timed

CONSTANTS = "verl.trainer.constants_ppo"
V1 = "verl.trainer.ppo.v1.trainer_base"
V1_SEPARATE = "verl.trainer.ppo.v1.trainer_separate_async"
BUFFER = "verl.trainer.ppo.v1.replay_buffer"
FULLY = "verl.experimental.fully_async_policy.fully_async_trainer"
SEPARATION = "verl.experimental.separation.ray_trainer"
RAY_TRAINER = "verl.trainer.ppo.ray_trainer"
AGENT_LOOP = "verl.experimental.agent_loop.agent_loop"
SERVING = "verl.workers.rollout.llm_server"
ENGINE = "verl.checkpoint_engine.base"
WORKERS = "verl.workers.engine_workers"
VLLM = "verl.workers.rollout.vllm_rollout.vllm_async_server"
SGLANG = "verl.workers.rollout.sglang_rollout.async_sglang_server"
TRTLLM = "verl.workers.rollout.trtllm_rollout.trtllm_async_server"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """
    A function of verl's, and what wraps it.
    """

    module: str
    where: str
    wrap: Wrap
    needs: tuple[str, ...] = ()
    """Parameters that the wrapper reads by name."""
    override: bool = False
    """Where the class has none of its own, the row of its base serves."""


def _rows(module: str, *rows: tuple[str, Wrap] | tuple[str, Wrap, tuple[str, ...]]) -> tuple[Target, ...]:
    return tuple(Target(module=module, where=row[0], wrap=row[1], needs=row[2] if len(row) > 2 else ()) for row in rows)


def _overrides(module: str, *rows: tuple[str, Wrap] | tuple[str, Wrap, tuple[str, ...]]) -> tuple[Target, ...]:
    return tuple(replace(target, override=True) for target in _rows(module, *rows))


def _server(module: str, name: str) -> tuple[Target, ...]:
    return _rows(
        module,
        (f"{name}.set_global_steps", server.weights_come, ("global_steps",)),
        (f"{name}.release_kv_cache", server.weights_change),
        (f"{name}.sleep", server.weights_go),
        (f"{name}.abort_all_requests", server.timed(names.ROLLOUT_PAUSE)),
        (f"{name}.resume_generation", server.timed(names.ROLLOUT_RESUME)),
        (f"{name}.generate", server.generates),
    )


TARGETS: tuple[Target, ...] = (
    *_rows(CONSTANTS, ("get_ppo_ray_runtime_env", driver.runtime_env)),
    *_rows(ENGINE, ("CheckpointEngineManager.update_weights", sync.updates, ("global_steps",))),
    *_rows(
        V1,
        ("PPOTrainer.__init__", trainer.constructed, ("config",)),
        ("PPOTrainer._load_checkpoint", trainer.resumed),
        ("PPOTrainer.fit", trainer.fit),
        ("PPOTrainer.on_step_begin", trainer.begins),
        ("PPOTrainer._start_profiling", trainer.begins),
        ("PPOTrainer.step", trainer.begins),
        ("PPOTrainer._validate", trainer.validates),
        ("PPOTrainer._save_checkpoint", trainer.saves),
        ("PPOTrainer._compute_reward_colocate", timed(names.TRAIN_REWARD)),
        ("PPOTrainer._compute_old_log_prob", timed(names.TRAIN_LOG_PROB)),
        ("PPOTrainer._compute_ref_log_prob", timed(names.TRAIN_REF_LOG_PROB)),
        ("PPOTrainer._compute_values", timed(names.TRAIN_VALUES)),
        ("PPOTrainer._compute_advantage", timed(names.TRAIN_ADVANTAGE)),
        ("PPOTrainer._update_critic", timed(names.TRAIN_UPDATE_CRITIC)),
        ("PPOTrainer._update_actor", minibatch.updates_actor(trainer.told), ("batch",)),
    ),
    *_overrides(
        V1_SEPARATE,
        ("PPOTrainerSeparateAsync.on_step_begin", trainer.begins),
        ("PPOTrainerSeparateAsync._compute_old_log_prob", timed(names.TRAIN_LOG_PROB)),
    ),
    *_rows(BUFFER, ("ReplayBuffer.sample", trainer.waits, ("partition_id",))),
    *_overrides(
        BUFFER,
        ("ReplayBufferAsync.sample", trainer.waits, ("partition_id",)),
        ("ReplayBufferAsync.wait_for_sampleable", trainer.waits, ("partition_id",)),
    ),
    *_rows(
        FULLY,
        ("FullyAsyncTrainer.__init__", trainer.constructed, ("config",)),
        ("FullyAsyncTrainer.load_checkpoint", fully_async.resumed),
        ("FullyAsyncTrainer.fit", fully_async.fit),
        ("FullyAsyncTrainer.fit_step", fully_async.fit_step),
        (
            "FullyAsyncTrainer._get_samples_from_queue",
            timed(names.TRAIN_WAIT_SAMPLES, bucket=names.Bucket.IDLE, wait_for="samples"),
        ),
        ("FullyAsyncTrainer._compute_old_log_prob", timed(names.TRAIN_LOG_PROB)),
        ("FullyAsyncTrainer._fit_update_weights", fully_async.updates_weights),
        ("FullyAsyncTrainer._fit_validate", fully_async.validates, ("val_before_train",)),
        ("FullyAsyncTrainer._save_checkpoint", fully_async.saves),
    ),
    *_rows(
        AGENT_LOOP,
        ("AgentLoopWorker._run_agent_loop", agent_loop.runs, ("trajectory",)),
    ),
    *_rows(
        SERVING,
        ("LLMServerClient._vllm_request_id", agent_loop.asks, ("request_id",)),
        ("LLMServerClient.generate", agent_loop.hears),
        ("LLMServerManager._initialize_llm_servers", replicas.starts),
    ),
    *_rows(SEPARATION, ("SeparateRayPPOTrainer._fit_compute_advantage", timed(names.TRAIN_ADVANTAGE))),
    *_rows(
        RAY_TRAINER,
        ("RayPPOTrainer._compute_reward_colocate", timed(names.TRAIN_REWARD)),
        ("RayPPOTrainer._compute_old_log_prob", timed(names.TRAIN_LOG_PROB)),
        ("RayPPOTrainer._compute_ref_log_prob", timed(names.TRAIN_REF_LOG_PROB)),
        ("RayPPOTrainer._compute_values", timed(names.TRAIN_VALUES)),
        ("RayPPOTrainer._update_critic", timed(names.TRAIN_UPDATE_CRITIC)),
        ("RayPPOTrainer._update_actor", minibatch.updates_actor(fully_async.told), ("batch",)),
    ),
    *_rows(
        WORKERS,
        ("ActorRolloutRefWorker.update_weights", worker.updates, ("global_steps",)),
        ("ActorRolloutRefWorker.compute_log_prob", worker.works(names.TRAIN_LOG_PROB)),
        ("ActorRolloutRefWorker.compute_ref_log_prob", worker.works(names.TRAIN_REF_LOG_PROB)),
        ("ActorRolloutRefWorker.update_actor", worker.works(names.TRAIN_UPDATE_ACTOR)),
        ("ActorRolloutRefWorker.save_checkpoint", worker.saves, ("global_step",)),
        ("TrainingWorker.infer_batch", worker.works_for_critic(names.TRAIN_VALUES)),
        ("TrainingWorker.train_mini_batch", worker.works_for_critic(names.TRAIN_UPDATE_CRITIC)),
        ("TrainingWorker.save_checkpoint", worker.saves, ("global_step",)),
    ),
    *_server(VLLM, "vLLMHttpServer"),
    *_rows(VLLM, ("vLLMHttpServer._preprocess_engine_kwargs", server.engine_arguments, ("engine_kwargs",))),
    *_server(SGLANG, "SGLangHttpServer"),
    *_server(TRTLLM, "TRTLLMHttpServer"),
)


def by_module() -> dict[str, tuple[Target, ...]]:
    """
    The table by the module that a row waits for.
    """
    return {
        module: tuple(target for target in TARGETS if target.module == module)
        for module in dict.fromkeys(target.module for target in TARGETS)
    }
