"""
A tree of actors, as many a tutorial has it: a supervisor makes its own workers and shares out the work. Ends in
``# stepscope`` what was added to it, or changed from ``.remote(…)``, and in ``# test`` what a test needs.
"""

import sys
from typing import Any

import ray

import stepscope  # stepscope
from stepscope.integrations import ray as stepscope_ray  # stepscope
from stepscope.integrations.ray import call, traced  # stepscope
from tests.integration.ray_told import wait_for_spans  # test


@ray.remote(num_cpus=0)
@traced  # stepscope
class Worker:
    def __init__(self, rank: int) -> None:
        stepscope.init(role="worker", rank=rank)  # stepscope

    def work(self, number: int) -> int:
        with stepscope.span("work"):  # stepscope
            return sum(ray.get([call(square, part) for part in range(number)]))  # stepscope


@ray.remote(num_cpus=0)
@traced  # stepscope
class Supervisor:
    def __init__(self, count: int) -> None:
        stepscope.init(role="supervisor")  # stepscope
        self.workers: list[Any] = [Worker.remote(rank) for rank in range(count)]  # type: ignore[attr-defined]

    def work(self, number: int) -> int:
        with stepscope.span("share out"):  # stepscope
            return sum(ray.get([call(worker.work, number) for worker in self.workers]))  # stepscope


@ray.remote(num_cpus=0)
@traced  # stepscope
def square(number: int) -> int:
    stepscope.init(role="square")  # stepscope
    with stepscope.span("square"):  # stepscope
        return number**2


if __name__ == "__main__":
    ray.init(runtime_env=stepscope_ray.runtime_env())  # stepscope
    stepscope.init(role="trainer")  # stepscope
    supervisor: Any = Supervisor.remote(2)  # type: ignore[attr-defined]
    for version in (1, 2):
        with stepscope.step(), stepscope.span("round"):  # stepscope
            total = ray.get(call(supervisor.work, 3))  # stepscope
            stepscope.weights_published(version)  # stepscope
    wait_for_spans(2, {"share out": 1, "work": 2, "square": 6})  # test
    sys.stdout.write(f"{total}\n")
