"""
Every kind of call that Ray has, made with the caller's context: two rounds of each, in two steps.

Run as ``python -m tests.integration.ray_contexts``. Each kind is called in a span ``call.KIND`` of the
driver's and does its work in a span ``work.KIND``.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import stepscope
from stepscope.integrations import ray as stepscope_ray
from tests.integration.ray_told import KINDS, NESTED, wait_for_spans

ROUNDS = (1, 2)
remote: Callable[..., Any] = ray.remote


@remote(num_cpus=0)
@stepscope_ray.traced
class Plain:
    def __init__(self, role: str) -> None:
        stepscope.init(role=role)
        with stepscope.span(f"made.{role}"):
            pass

    def work(self, kind: str) -> int:
        with stepscope.span(f"work.{kind}"):
            return os.getpid()

    def parts(self, count: int) -> Iterator[int]:
        for number in range(count):
            with stepscope.span("work.stream"):
                yield number

    @staticmethod
    def fixed() -> None:
        with stepscope.span("work.static"):
            pass


@remote(num_cpus=0)
@stepscope_ray.traced
class Async:
    def __init__(self) -> None:
        stepscope.init(role="async")

    async def work(self) -> None:
        with stepscope.span("work.async"):
            await asyncio.sleep(0)

    async def parts(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            with stepscope.span("work.async-stream"):
                yield number
            await asyncio.sleep(0)


@remote(num_cpus=0)
@stepscope_ray.traced
class Outer:
    def __init__(self) -> None:
        stepscope.init(role="outer")
        self.inner = stepscope_ray.call(cast("Any", Plain).options(name=None), "inner")

    async def work(self) -> None:
        with stepscope.span("work.outer"):
            await stepscope_ray.call(self.inner.work, "inner")
            await stepscope_ray.call(leaf, "nested-task")


@remote(num_cpus=0)  # type: ignore[untyped-decorator]  # Ray's own is not typed so
@stepscope_ray.traced
def leaf(kind: str) -> int:
    stepscope.init(role=f"{kind}-role")
    with stepscope.span(f"work.{kind}"):
        return os.getpid()


@remote(num_cpus=0)  # type: ignore[untyped-decorator]  # Ray's own is not typed so
@stepscope_ray.traced
def leaves(count: int) -> Iterator[int]:
    stepscope.init(role="task-stream-role")
    for number in range(count):
        with stepscope.span("work.task-stream"):
            yield number


def gathered(stream: Any) -> list[int]:
    """
    What the references in ``stream`` hold.
    """
    return [ray.get(item) for item in stream]


def calls() -> dict[str, Callable[[], object]]:
    """
    What is called in each round, by kind.
    """
    call = stepscope_ray.call
    plain, asynchronous, outer = call(Plain, "plain"), call(Async), call(Outer)
    threaded = call(cast("Any", Plain).options(max_concurrency=4), "threaded")
    group = placement_group([{"CPU": 1}])
    ray.get(group.ready())
    strategy = PlacementGroupSchedulingStrategy(group)
    placed = call(cast("Any", Plain).options(scheduling_strategy=strategy), "placed")
    return {
        "plain": lambda: ray.get(call(plain.work, "plain")),
        "static": lambda: ray.get(call(plain.fixed)),
        "stream": lambda: gathered(call(plain.parts, 2)),
        "async": lambda: ray.get([call(asynchronous.work) for _ in range(3)]),
        "async-stream": lambda: gathered(call(asynchronous.parts, 2)),
        "threaded": lambda: ray.get([call(threaded.work, "threaded") for _ in range(3)]),
        "outer": lambda: ray.get(call(outer.work)),
        "task": lambda: say(task=ray.get(call(leaf, "task"))),
        "other-task": lambda: say(task=ray.get(call(leaf, "other-task"))),
        "task-stream": lambda: gathered(call(leaves, 2)),
        "placed": lambda: ray.get(call(placed.work, "placed")),
        "options": lambda: ray.get(call(plain.work.options(name="named"), "options")),
    }


def say(**found: object) -> None:
    """
    Print a row.
    """
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def complaints(folder: Path) -> list[str]:
    """
    What the workers' logs hold that is no good sign.
    """
    bad = ("Traceback", "Failed to detach", "stepscope failed", "is not traced")
    return [
        line
        for path in folder.glob("logs/worker-*")
        for line in path.read_text(errors="replace").splitlines()
        if any(word in line for word in bad)
    ]


def main() -> None:
    """
    All of them, in two steps.
    """
    ray.init(log_to_driver=False, runtime_env=stepscope_ray.runtime_env())
    stepscope.init(role="trainer")
    with stepscope.span("made"):
        kinds = calls()
    for version in ROUNDS:
        with stepscope.step():
            for kind, made in kinds.items():
                with stepscope.span(f"call.{kind}"):
                    made()
            stepscope.weights_published(version)
    wait_for_spans(ROUNDS[-1], {f"work.{kind}": count for kind, count in {**KINDS, **NESTED}.items()})
    say(complaints=complaints(Path(cast("Any", ray)._private.worker._global_node.get_session_dir_path())))
    stepscope.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
