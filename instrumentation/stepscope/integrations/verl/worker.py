"""
The processes that hold the model: driven by remote calls, without a loop of their own. Role ``actor``.

Owns how such a process knows its step. ``update_weights(global_steps)`` comes to every rank in every update, the first
before training too, so it tells the version; the first work after it enters the next step. Critic and reference
policy share the process of the actor, or have no boundary and no spans.
"""

import functools
from typing import Any

from stepscope import names, registration
from stepscope.complaints import complaints
from stepscope.integrations.verl import loop
from stepscope.integrations.verl.phases import Function, Wrap, phase, whole
from stepscope.names import Bucket

ROLE = "actor"
CRITIC = "value_model"
"""What a training worker's configuration says its model is, where it is the critic's."""


def updates(original: Function) -> Function:
    """
    ``ActorRolloutRefWorker.update_weights(global_steps, mode)``: this rank's part of the update; its step ends with it.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, global_steps: Any = None, *args: Any, **kwargs: Any) -> Any:
        version = whole(global_steps)
        if version is None:
            return await original(self, global_steps, *args, **kwargs)
        if not loop.is_role(ROLE):
            _enrol(self, version)
        elif loop.process.is_news(version):
            await loop.process.aenter()
        with phase(names.WEIGHTS_PUBLISH, bucket=Bucket.OVERHEAD):
            result = await original(self, global_steps, *args, **kwargs)
        await loop.process.apublished(version)
        loop.deliver()
        return result

    return wrapper


def _enrol(worker: Any, version: int) -> None:
    try:
        rank, world_size = int(worker.rank), int(worker.world_size)
    except Exception as error:  # noqa: BLE001 - verl's attributes are not ours; the worker stays out
        complaints.fault("the rank of a worker", error)
        return
    loop.enrol(role=ROLE, rank=rank, world_size=world_size, version=version)


def works(name: str) -> Wrap:
    """
    Wraps a method that does a part of the step's work.
    """

    def wrap(original: Function) -> Function:
        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            if loop.is_role(ROLE):
                loop.process.enter()
            with phase(name, bucket=Bucket.PRODUCTIVE):
                return original(self, *args, **kwargs)

        return wrapper

    return wrap


def works_for_critic(name: str) -> Wrap:
    """
    The same of a training worker, unless it is a part of the actor: that has said it already.
    """

    def wrap(original: Function) -> Function:
        outer = works(name)(original)

        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            of_critic = getattr(getattr(self, "config", None), "model_type", None) == CRITIC
            return (outer if of_critic else original)(self, *args, **kwargs)

        return wrapper

    return wrap


def saves(original: Function) -> Function:
    """
    ``save_checkpoint(local_path, hdfs_path, global_step, …)``: outside the window, with the version that it holds.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if registration.session is None:
            return original(self, *args, **kwargs)
        loop.process.cut()
        version = whole(kwargs.get("global_step", args[2] if len(args) > 2 else None))
        with phase(names.CHECKPOINT_SAVE, bucket=Bucket.OVERHEAD, after_version=version):
            return original(self, *args, **kwargs)

    return wrapper
