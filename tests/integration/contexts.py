"""
Every kind of place in which a training program may run its loop, each as a role of its own in one run.

Run as ``python -m tests.integration.contexts``: two steps in each place, with a mark that names it.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator

import ray
import torch

import stepscope
from stepscope_trainer.cluster import actor_environment, started
from tests.integration.programs import MARK

PATIENCE = 60.0
"""Seconds for what takes milliseconds on an idle machine."""

VERSIONS = (0, 1)


def work(name: str) -> None:
    """
    A span with some training in it.
    """
    with stepscope.span(f"work.{name}", bucket="productive"), torch.profiler.record_function(f"{MARK}{name}"):
        model = torch.nn.Linear(8, 8)
        model(torch.ones(4, 8)).square().sum().backward()


def two_steps(role: str) -> None:
    """
    The plain loop.
    """
    stepscope.init(role=role, total_steps=2)
    for version in VERSIONS:
        with stepscope.step():
            work(role)
            stepscope.weights_published(version + 1)


class AsyncActor:
    """
    A replica whose engine lives in an event loop.
    """

    async def load(self, version: int) -> None:
        """
        Take ``version`` in.
        """
        stepscope.init(role="async-actor", total_steps=2)
        await stepscope.aweights_loaded(version)

    async def generate(self) -> None:
        """
        Generate, in several tasks at a time.
        """

        async def request() -> None:
            work("async-actor")

        await asyncio.gather(*(request() for _ in range(3)))

    async def pause(self) -> None:
        """
        Halt.
        """
        await stepscope.aweights_loading()

    async def in_threads(self) -> None:
        """
        A step whose work is done by another thread, then one that is another thread's altogether.
        """
        stepscope.init(role="to-thread", total_steps=2)
        await stepscope.aweights_loaded(0)
        await asyncio.to_thread(work, "to-thread")
        await stepscope.aweights_loading()

        def whole() -> None:
            stepscope.weights_loaded(1)
            work("to-thread")
            stepscope.weights_loading()

        await asyncio.to_thread(whole)


class ThreadedActor:
    """
    A replica whose calls run on several threads at once: the pause comes on another thread than the load.
    """

    def __init__(self) -> None:
        self._generating = threading.Event()
        self._paused = threading.Event()

    def generate(self, version: int) -> int:
        """
        Load ``version`` and generate until paused; which thread it was.
        """
        stepscope.init(role="threaded-actor", total_steps=2)
        stepscope.weights_loaded(version)
        work("threaded-actor")
        self._generating.set()
        assert self._paused.wait(PATIENCE)
        self._paused.clear()
        work("threaded-actor-later")
        return threading.get_native_id()

    def pause(self) -> int:
        """
        Pause what generates; which thread it was.
        """
        assert self._generating.wait(PATIENCE)
        self._generating.clear()
        stepscope.weights_loading()
        self._paused.set()
        return threading.get_native_id()


class StreamingActor:
    """
    A trainer that yields what it has while it is in its step.
    """

    def stream(self) -> Iterator[int]:
        """
        Two steps, in several pieces each.
        """
        stepscope.init(role="stream", total_steps=2)
        for version in VERSIONS:
            with stepscope.step():
                for number in range(3):
                    work("stream")
                    yield number
                stepscope.weights_published(version + 1)


def task(version: int) -> int:
    """
    One step as a task, which may meet a worker that has done the one before.
    """
    stepscope.init(role="task", param_version=version, total_steps=2)
    with stepscope.step():
        work("task")
        stepscope.weights_published(version + 1)
    return os.getpid()


def on_ray() -> None:
    """
    Everything that Ray runs.
    """
    place = {"num_cpus": 0, "runtime_env": {"env_vars": actor_environment(os.environ)}}
    remote: Callable[..., Callable[[object], object]] = ray.remote
    asynchronous = remote(**place)(AsyncActor).remote()  # type: ignore[attr-defined]
    for version in VERSIONS:
        ray.get(asynchronous.load.remote(version))
        ray.get(asynchronous.generate.remote())
        ray.get(asynchronous.pause.remote())
    ray.get(asynchronous.in_threads.remote())

    threaded = remote(max_concurrency=3, **place)(ThreadedActor).remote()  # type: ignore[attr-defined]
    threads = []
    for version in VERSIONS:
        generating = threaded.generate.remote(version)
        paused = ray.get(threaded.pause.remote())
        threads.append(paused != ray.get(generating))
    say("threaded-actor", other_threads=threads)

    streaming = remote(**place)(StreamingActor).remote()  # type: ignore[attr-defined]
    pieces = [ray.get(item) for item in streaming.stream.options(num_returns="streaming").remote()]
    say("stream", pieces=pieces)

    once = remote(**place)(task)
    say("task", pids=[ray.get(once.remote(version)) for version in VERSIONS])  # type: ignore[attr-defined]
    for actor in (asynchronous, threaded, streaming):
        # In order, as a job does that ends: what is killed says nothing.
        actor.__ray_terminate__.remote()


def forked() -> None:
    """
    A child of ``os.fork()``, made while its parent records.
    """
    stepscope.init(role="forking", total_steps=2)
    with stepscope.step():
        work("forking")
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            with stepscope.step():
                work("forked")
            os.write(writer, json.dumps(stepscope.start_profiling()).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            say("forked", outcome=json.loads(answer.read()), code=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stepscope.weights_published(1)
    stepscope.shutdown()


def say(role: str, **found: object) -> None:
    """
    Print a row.
    """
    sys.stdout.write(json.dumps({"role": role, **found}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """
    All places, one after another.
    """
    forked()
    child = multiprocessing.get_context("spawn").Process(target=two_steps, args=("spawned",))
    child.start()
    with started():
        on_ray()
    child.join()
    say("spawned", code=child.exitcode)


if __name__ == "__main__":
    main()
