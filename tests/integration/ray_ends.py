"""
Actors that come one after another, and a driver that takes no part: the first of them starts the sidecar, and ends.

Run as ``python -m tests.integration.ray_ends``; prints the sidecar's pid as each actor finds it.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import ray

import stepscope
from stepscope.integrations import ray as stepscope_ray

PATIENCE = 60.0
"""Seconds for a sidecar to be there, which takes about two."""

remote: Callable[..., Any] = ray.remote


@remote(num_cpus=0)
@stepscope_ray.traced
class Once:
    """
    Does one thing; its process is no other's.
    """

    def ready(self) -> None:
        """
        Its process is there.
        """

    def work(self, rank: int, folder: str) -> int:
        stepscope.init(role="once", rank=rank)
        place = Path(folder) / "latest" / "sidecar.json"
        end, pause = time.monotonic() + PATIENCE, threading.Event()
        while not place.exists() and time.monotonic() < end:
            pause.wait(0.05)
        with stepscope.span("work"):
            return int(json.loads(place.read_text())["pid"])


def main() -> None:
    """
    Two actors; each is gone before the next takes part.
    """
    environment = stepscope_ray.runtime_env()
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    # Both processes at once: without one that takes part the sidecar ends after ten seconds.
    actors: list[Any] = [Once.remote() for _ in range(2)]  # type: ignore[attr-defined]
    ray.get([actor.ready.remote() for actor in actors])
    for rank in range(2):
        actor = actors.pop(0)
        sidecar = ray.get(actor.work.remote(rank, environment["env_vars"]["STEPSCOPE_DIR"]))
        children = [child.pid for child in psutil.Process().children(recursive=True)]
        sys.stdout.write(json.dumps({"sidecar": sidecar, "ours": sidecar in children}) + "\n")
        gone = actor.__ray_terminate__.remote()
        del actor
        ray.wait([gone], timeout=60)
    ray.shutdown()


if __name__ == "__main__":
    main()
