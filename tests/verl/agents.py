"""
verl's agent loop workers with a stand-in for the agent: two turns on a server, whose engine is a stand-in too.

verl's own are the worker, its client, the load balancer, and how a trajectory is padded and put into the queue.
"""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from hydra import compose, initialize_config_module
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput, _agent_loop_registry
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from tests.verl import engine
from tests.verl.standins import PROMPT

NAME = "standin"
"""The agent's in verl's registry."""

OVERRIDES = [f"actor_rollout_ref.rollout.agent.default_agent_loop={NAME}", "actor_rollout_ref.rollout.name=vllm"]


class TwoTurns:
    """
    Stands in for an agent: asks, and asks again.
    """

    def __init__(self, server_manager: Any, **told: Any) -> None:
        self._client = server_manager

    async def run(self, sampling_params: dict[str, Any], **told: Any) -> AgentLoopOutput:
        """
        A trajectory of two turns.
        """
        request, prompt = uuid4().hex, list(range(1, PROMPT + 1))
        tokens: list[int] = []
        versions: list[int | None] = []
        for _ in range(2):
            output = await self._client.generate(
                request, prompt_ids=[*prompt, *tokens], sampling_params=dict(sampling_params)
            )
            tokens += output.token_ids
            versions += [output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]]
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=tokens,
            response_mask=[1] * len(tokens),
            response_logprobs=[0.0] * len(tokens),
            reward_score=float(told.get("session_id", 1) % 2),
            num_turns=4,
            metrics=AgentLoopMetrics(),
            extra_fields={
                "min_global_steps": versions[0],
                "max_global_steps": versions[-1],
                "reward_extra_info": {},
                "turn_scores": [],
                "tool_rewards": [],
            },
        )


class Tokenizer:
    """
    Stands in for a tokenizer: pads.
    """

    pad_token_id = eos_token_id = 0
    padding_side = "right"

    def pad(self, told: dict[str, list[int]], *, max_length: int, return_attention_mask: bool, **rest: Any) -> Any:
        """
        As the one of ``transformers`` does for one row.
        """
        import torch

        row = told["input_ids"]
        lacking = max_length - len(row)
        before, after = (lacking, 0) if self.padding_side == "left" else (0, lacking)
        found = {"input_ids": torch.tensor([0] * before + list(row) + [0] * after)}
        if return_attention_mask:
            found["attention_mask"] = torch.tensor([0] * before + [1] * len(row) + [0] * after)
        return found


def furnish(made: Any, *, config: Any, client: Any) -> None:
    """
    Give a worker what its constructor would, but for a model's tokenizer.
    """
    _agent_loop_registry[NAME] = {"_target_": f"{__name__}.{TwoTurns.__name__}"}
    made.config, made.rollout_config = config, config.actor_rollout_ref.rollout
    made.llm_client, made.teacher_client, made.reward_loop_worker_handles = client, None, None
    made.tokenizer, made.processor, made.hf_model_type, made.mm_processor_kwargs = Tokenizer(), None, None, {}
    made.dataset_cls, made.tools, made.distillation_enabled = None, [], False
    made.background_tasks = set()


class Local:
    """
    Stands in for the handle of an actor: what is called in this process, on the running loop.
    """

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        async def called(*args: Any, **told: Any) -> Any:
            result = method(*args, **told)
            return await result if asyncio.iscoroutine(result) else result

        return SimpleNamespace(remote=lambda *args, **told: asyncio.ensure_future(called(*args, **told)))


def configuration() -> Any:
    """
    verl's own, for an agent loop on vLLM.
    """
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", [*OVERRIDES, "data.max_prompt_length=8", "data.max_response_length=8"])


def through(server: Any, config: Any) -> FullyAsyncLLMServerClient:
    """
    verl's client with its load balancer in this process, and ``server``, the handle of the one server.
    """
    return FullyAsyncLLMServerClient(config, Local(GlobalRequestLoadBalancer({"0": server})))


class Agents:
    """
    V1's agent loop worker and a rollout server, on a loop of their own in this process.
    """

    def __init__(self, workers: Any, *, config: Any) -> None:
        self._workers = workers
        self.server = engine.server()
        self.server.engine.prompt = True
        from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

        kind = AgentLoopWorkerTQ.__ray_metadata__.modified_class
        self._worker = kind.__new__(kind)
        furnish(self._worker, config=config, client=through(Local(self.server), config))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agents")
        self._thread.start()

    def generate_sequences(self, prompts: Any) -> None:
        """
        As verl's manager does: to the worker, without waiting for the samples.
        """
        self.server.global_steps = self._workers.version
        asyncio.run_coroutine_threadsafe(self._worker.generate_sequences(prompts), self._loop).result(60)

    def close(self) -> None:
        """
        Wait for the samples under way, and end the loop.
        """

        async def settle() -> None:
            await asyncio.gather(*self._worker.background_tasks)

        asyncio.run_coroutine_threadsafe(settle(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
