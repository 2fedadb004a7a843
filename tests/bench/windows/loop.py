"""
One run of the loop in a process of its own: the reference job's parts on Ray, with the marked actors in their places.

``python -m tests.bench.windows.loop SETTING`` runs it to its end and leaves what happened in the setting's folder.
"""

import os
import sys
from functools import partial
from typing import Any, cast

from stepscope_rollouter.calls import QueueCalls
from stepscope_rollouter.queue import SampleQueue
from stepscope_rollouter.worker import Plan
from stepscope_trainer import cluster, scope
from stepscope_trainer.job import build_task
from stepscope_trainer.weights import WeightChannel
from tests.bench.windows import verl
from tests.bench.windows.actors import MarkedRollouter, MarkedTrainer
from tests.bench.windows.setting import Setting, Way, load

START_SECONDS = 180.0
"""Importing torch in two processes and warming up; a busy machine takes a minute."""

STEP_SECONDS = 120.0
"""For one step; it takes about one second, and a few where all operators are recorded and exported."""

CLOSE_SECONDS = 60.0
"""For what is open to be written at the end."""


class UnexpectedError(RuntimeError):
    """
    The run did not end as its setting says.
    """


def plan(setting: Setting) -> Plan:
    """
    How the one replica works.
    """
    config = setting.config
    return Plan(
        rank=0,
        world=1,
        total_steps=config.steps,
        resumed_from=setting.resume or None,
        in_hand=config.requests_per_replica,
        slots=config.slots,
        lockstep=False,
        samples=config.samples,
        staleness=config.allowed_staleness,
        seed=config.seed,
    )


def take(queue: Any, step: int) -> Any:
    """
    Wait for the samples of ``step``.
    """
    import ray

    return ray.get(queue.take.remote(step))


def channel(setting: Setting, *, replica: Any) -> WeightChannel:
    """
    The weight channel, of the reference job or with verl's calls around it.
    """
    import ray

    updates = {0: replica.update.remote}
    rest: dict[str, Any] = {"transport": ray, "deadline": setting.config.ack_deadline, "give_up": lambda _: None}
    if setting.way is not Way.VERL:
        return WeightChannel(updates, **rest)
    return verl.Channel(
        updates,
        selected=setting.selected,
        start=lambda: ray.get(replica.start_verl.remote()),
        stop=lambda: ray.get(replica.stop_verl.remote()),
        **rest,
    )


def run(setting: Setting) -> None:
    """
    Run it to its end.

    Raises:
        UnexpectedError: it ended otherwise than told.
    """
    import ray

    config = setting.config
    options = {"num_cpus": 0, "runtime_env": {"env_vars": cluster.actor_environment(os.environ)}}
    queue: Any = (
        ray.remote(SampleQueue)
        .options(**options)
        .remote(
            per_step=config.prompts,
            steps=setting.supplied,
            capacity=config.queue_capacity,
            staleness=config.allowed_staleness,
            version=setting.resume,
        )
    )
    task = partial(build_task, config)
    replica: Any = (
        ray.remote(MarkedRollouter)
        .options(**options)
        .remote(setting, plan(setting), task=task, queue=QueueCalls(queue))
    )
    trainer: Any = (
        ray.remote(MarkedTrainer)
        .options(**options)
        .remote(
            setting,
            rank=0,
            task=task,
            take=partial(take, queue),
            channel=partial(channel, setting, replica=replica),
        )
    )
    try:
        host = cast("Any", ray.util).get_node_ip_address()
        started = replica.start.remote(version=setting.resume)
        port = ray.get(trainer.open.remote(host), timeout=START_SECONDS)
        ray.get([started, trainer.setup.remote(host, port)], timeout=START_SECONDS)
        completed = _follow(trainer)
        queue.close.remote()
        ray.get(replica.stop.remote(), timeout=CLOSE_SECONDS)
        ray.get([trainer.finish.remote(), replica.finish.remote()], timeout=CLOSE_SECONDS)
    finally:
        for actor in (trainer, replica, queue):
            ray.kill(actor)
    if completed != setting.completed:
        raise UnexpectedError(f"steps {completed} were completed, not {setting.completed}")


def _follow(trainer: Any) -> tuple[int, ...]:
    """
    The steps that the trainer completes; that it raises is an end like another.
    """
    import ray

    steps: list[int] = []
    rows = trainer.run.options(num_returns="streaming").remote()
    while True:
        ready, _ = ray.wait([rows], timeout=START_SECONDS if not steps else STEP_SECONDS)
        if not ready:
            raise UnexpectedError(f"nothing came for too long after steps {steps}")
        try:
            steps.append(ray.get(next(rows)).step)
        except StopIteration:
            return tuple(steps)
        except ray.exceptions.RayTaskError as error:
            if "told to fail" not in str(error):
                raise
            return tuple(steps)


def main(setting: Setting) -> None:
    """
    With a Ray of its own, as the reference job does it.
    """
    ours = scope.load(setting.way.ours)
    ours.init(role="driver", register_only=True)
    try:
        with cluster.started():
            run(setting)
    finally:
        ours.shutdown()


if __name__ == "__main__":
    main(load(sys.argv[1]))
