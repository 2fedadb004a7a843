"""
Producers and consumers of many a tutorial, with Ray's own queue between them. Ends in ``# stepscope`` what was added to
it, or changed from ``.remote(…)``, and in ``# test`` what a test needs.
"""

from typing import Any

import ray
from ray.util.queue import Queue

import stepscope  # stepscope
from stepscope.integrations import ray as stepscope_ray  # stepscope
from stepscope.integrations.ray import call, traced  # stepscope
from tests.integration.ray_told import wait_for_spans  # test


@ray.remote(num_cpus=0)
@traced  # stepscope
class Producer:
    def __init__(self, rank: int) -> None:
        stepscope.init(role="producer", rank=rank)  # stepscope

    def produce(self, queue: Any, count: int) -> None:
        for number in range(count):
            with stepscope.span("produce"):  # stepscope
                queue.put({"number": number, "trace": stepscope.inject()})  # stepscope


@ray.remote(num_cpus=0)
@traced  # stepscope
class Consumer:
    def __init__(self) -> None:
        stepscope.init(role="consumer")  # stepscope

    def consume(self, queue: Any, count: int) -> int:
        total = 0
        for _ in range(count):
            item = queue.get()
            with stepscope.attached(item["trace"]), stepscope.span("consume"):  # stepscope
                total += item["number"]
        return total


if __name__ == "__main__":
    ray.init(runtime_env=stepscope_ray.runtime_env())  # stepscope
    stepscope.init(role="trainer")  # stepscope
    queue = Queue(maxsize=4, actor_options={"num_cpus": 0})
    producers: list[Any] = [Producer.remote(rank) for rank in range(2)]  # type: ignore[attr-defined]
    consumer: Any = Consumer.remote()  # type: ignore[attr-defined]
    for version in (1, 2):
        with stepscope.step(), stepscope.span("round"):  # stepscope
            made = [call(producer.produce, queue, 3) for producer in producers]  # stepscope
            ray.get([*made, call(consumer.consume, queue, 6)])  # stepscope
            stepscope.weights_published(version)  # stepscope
    wait_for_spans(2, {"produce": 6, "consume": 6})  # test
