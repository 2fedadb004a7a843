"""
Ray for one job: the one that runs already, or a small one of its own that leaves nothing behind.
"""

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

OBJECT_STORE_BYTES = 200 * 1024**2
"""Weights and samples of the reference job take a few MB; Ray's own default is a third of the memory."""

CARRIED = ("STEPSCOPE_", "OTEL_")
"""What of the driver's environment its actors need: Ray does not pass it on to a cluster that runs already."""


def actor_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """
    The environment of the actors: one thread each, because trainer and rollouters share the cores.
    """
    carried = {name: value for name, value in environment.items() if name.startswith(CARRIED)}
    if environment.get("PYTHONPATH"):
        parts = environment["PYTHONPATH"].split(os.pathsep)
        carried["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts if part)  # noqa: PTH100
    return {**carried, "OMP_NUM_THREADS": "1"}


@contextmanager
def started() -> Iterator[None]:
    """
    A Ray to start actors on, until the block is left.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if ray.is_initialized():
        yield
        return
    # Ray makes unix sockets below this folder, whose paths have to stay short.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    try:
        ray.init(
            # Another's, named by RAY_ADDRESS or found on this machine, has neither the room nor the folder asked for.
            address="local",
            # Actors ask for no CPU, so that any number of them fits; and none is started before it is needed.
            num_cpus=0,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
            namespace=f"stepscope-{uuid.uuid4().hex}",
            _temp_dir=folder,
        )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
