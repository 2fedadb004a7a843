"""
In the driver of a verl job: the run goes into the runtime environment that verl starts Ray with.

A driver that has called ``ray.init()`` itself is not asked; it gives ``stepscope.integrations.ray.runtime_env()``.
"""

import functools
from typing import Any

from stepscope.integrations import ray
from stepscope.integrations.verl import profiling
from stepscope.integrations.verl.phases import Function


def runtime_env(original: Function) -> Function:
    """
    ``get_ppo_ray_runtime_env(config)``, and this run in what it returns.

    Raises:
        ConfigurationError: a setting can't be used, or verl's own profiling is configured too. Nothing runs yet.
    """

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        profiling.adopt(args[0] if args else kwargs.get("config"))
        return ray.runtime_env(original(*args, **kwargs))

    return wrapper
