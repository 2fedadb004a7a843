"""
A trainer that drives workers without a loop of their own: three steps, every one of them selected in the workers.

Run as ``python -m tests.integration.ray_windows``. What is done in step S leaves the mark ``WHAT S`` in a recording.
"""

from collections.abc import Callable
from typing import Any

import ray
import torch

import stepscope
from stepscope.integrations import ray as stepscope_ray
from tests.integration.programs import MARK

STEPS = (1, 2, 3)
remote: Callable[..., Any] = ray.remote
call = stepscope_ray.call


def work(name: str, step: int) -> None:
    """
    A span with some training in it.
    """
    with stepscope.span(f"work.{name}", bucket="productive"), torch.profiler.record_function(f"{MARK}{name} {step}"):
        model = torch.nn.Linear(8, 8)
        model(torch.ones(4, 8)).square().sum().backward()


@remote(num_cpus=0)
@stepscope_ray.traced(publishes="publish")
class Learner:
    """
    Trains, and hands the weights over at the end of the step.
    """

    def __init__(self) -> None:
        stepscope.init(role="learner")

    def train(self, step: int) -> None:
        work("train", step)

    def publish(self, step: int) -> int:
        work("publish", step)
        return step

    def close(self) -> None:
        stepscope.shutdown()


@remote(num_cpus=0)
@stepscope_ray.traced(loads="load")
class Rollout:
    """
    Generates in an event loop, and takes the weights in between.
    """

    def __init__(self) -> None:
        stepscope.init(role="rollout")

    async def generate(self, step: int) -> None:
        work("generate", step)

    async def load(self, version: int) -> None:
        work("load", version)

    async def close(self) -> None:
        await stepscope.ashutdown()


@remote(num_cpus=0)
@stepscope_ray.traced
class Reward:
    """
    Scores, and has no part in an update.
    """

    def __init__(self) -> None:
        stepscope.init(role="reward")

    def score(self, step: int) -> None:
        work("score", step)

    def close(self) -> None:
        stepscope.shutdown()


def main() -> None:
    """
    The trainer's loop.
    """
    ray.init(log_to_driver=False, runtime_env=stepscope_ray.runtime_env())
    stepscope.init(role="trainer")
    learner, rollout, reward = (call(kind) for kind in (Learner, Rollout, Reward))
    ray.get(call(rollout.load, 0))
    for step in STEPS:
        with stepscope.step():
            ray.get([call(rollout.generate, step) for _ in range(2)])
            ray.get(call(reward.score, step))
            ray.get(call(learner.train, step))
            version = ray.get(call(learner.publish, step))
            ray.get(call(rollout.load, version))
            stepscope.weights_published(version)
    ray.get([call(actor.close) for actor in (learner, rollout, reward)])
    stepscope.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
