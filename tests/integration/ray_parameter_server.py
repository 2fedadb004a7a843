"""
The parameter server of many a tutorial: workers compute gradients, one actor applies them. Ends in ``# stepscope``
what was added to it, or changed from ``.remote(…)``, and in ``# test`` what a test needs.
"""

import sys
from typing import Any

import ray

import stepscope  # stepscope
from stepscope.integrations import ray as stepscope_ray  # stepscope
from stepscope.integrations.ray import call, traced  # stepscope
from tests.integration.ray_told import wait_for_spans  # test


@ray.remote
@traced(publishes="apply")  # stepscope
class ParameterServer:
    def __init__(self, rate: float) -> None:
        stepscope.init(role="server")  # stepscope
        self.rate, self.weights = rate, [0.0, 0.0]

    def apply(self, *gradients: list[float]) -> list[float]:
        with stepscope.span("apply", bucket="productive"):  # stepscope
            summed = [sum(parts) for parts in zip(*gradients, strict=True)]
            self.weights = [w - self.rate * g for w, g in zip(self.weights, summed, strict=True)]
            return self.weights


@ray.remote
@traced  # stepscope
class DataWorker:
    def __init__(self, seed: int) -> None:
        stepscope.init(role="worker", rank=seed)  # stepscope
        self.target = [1.0 + seed, -1.0]

    def gradients(self, weights: list[float]) -> list[float]:
        with stepscope.span("gradients", bucket="productive"):  # stepscope
            return [w - t for w, t in zip(weights, self.target, strict=True)]


if __name__ == "__main__":
    ray.init(runtime_env=stepscope_ray.runtime_env())  # stepscope
    stepscope.init(role="trainer")  # stepscope
    server: Any = ParameterServer.remote(0.1)  # type: ignore[attr-defined]
    workers: list[Any] = [DataWorker.remote(seed) for seed in range(2)]  # type: ignore[attr-defined]
    weights: list[float] = [0.0, 0.0]
    for iteration in range(1, 4):
        with stepscope.step(), stepscope.span("iteration"):  # stepscope
            found = [call(worker.gradients, weights) for worker in workers]  # stepscope
            weights = ray.get(call(server.apply, *found))  # stepscope
            stepscope.weights_published(iteration)  # stepscope
    wait_for_spans(3, {"gradients": 2, "apply": 1, "rl.step.process": 2})  # test
    sys.stdout.write(f"{weights}\n")
