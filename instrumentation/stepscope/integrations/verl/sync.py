"""
The true boundary: ``CheckpointEngineManager.update_weights()`` returns when every replica of it has the new weights.

It is the same in V1 and in fully_async. A second manager may be told the same version afterwards (replicas on the
trainer's devices); the first has ended the step. A replica that is brought the version that it has is told so ahead:
the pause for it looks like any other.
"""

import functools
import inspect
from collections.abc import Iterable
from typing import Any

from stepscope import names
from stepscope.complaints import complaints
from stepscope.integrations.verl import loop, samples, server, validation
from stepscope.integrations.verl.phases import Function, phase
from stepscope.integrations.verl.trainer import ROLE
from stepscope.names import Bucket

DECORATOR = "auto_await"
"""verl's: it looks at its caller's frame, so a wrapper has to lie below it, not around it."""

BROUGHT = "_stepscope_brought"
"""An attribute of a manager: the version that it brought last."""


def updates(original: Function) -> Function:
    """
    ``update_weights(global_steps)``: the step ends with its return.
    """
    inner = inspect.unwrap(original)
    decorator = original.__globals__.get(DECORATOR)
    if not inspect.iscoroutinefunction(inner):
        raise TypeError("update_weights is no coroutine")

    @functools.wraps(inner)
    async def wrapper(self: Any, global_steps: Any = None, *args: Any, **kwargs: Any) -> Any:
        if global_steps is None or not loop.is_role(ROLE):
            return await inner(self, global_steps, *args, **kwargs)
        if not validation.ahead.before(global_steps, self.replicas) and vars(self).get(BROUGHT) == global_steps:
            _repeats(global_steps, self.replicas)
        with phase(names.WEIGHTS_PUBLISH, bucket=Bucket.OVERHEAD):
            result = await inner(self, global_steps, *args, **kwargs)
        setattr(self, BROUGHT, global_steps)
        samples.tell(global_steps)
        await loop.process.apublished(global_steps)
        return result

    if inner is original:
        return wrapper
    if decorator is None:
        raise TypeError(f"update_weights has a decorator other than {DECORATOR}")
    return decorator(wrapper)  # type: ignore[no-any-return]  # a function of verl's


def _repeats(version: int, replicas: Iterable[Any]) -> None:
    try:
        for replica in replicas:
            for handle in getattr(replica, "servers", ()):
                handle.__ray_call__.remote(server.again, version)
    except Exception as error:  # noqa: BLE001 - the update comes without it, and ends the replicas' step early
        complaints.fault("telling replicas of a version that they have", error)
