"""
Actors that come one after another, and a driver that takes no part: the first of them starts the sidecar, and ends.

Run as ``python -m tests.integration.ray_ends``; prints the sidecar's pid as each actor finds it.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import ray

import stepscope
from stepscope.integrations import ray as stepscope_ray

remote: Callable[..., Any] = ray.remote


@remote(num_cpus=0)
@stepscope_ray.traced
class Once:
    """
    Does one thing; its process is no other's.
    """

    def __init__(self, rank: int) -> None:
        stepscope.init(role="once", rank=rank)

    def work(self, folder: str) -> int:
        with stepscope.span("work"):
            return int(json.loads((Path(folder) / "latest" / "sidecar.json").read_text())["pid"])


def main() -> None:
    """
    Two actors; the handle of each is dropped before the next is made.
    """
    environment = stepscope_ray.runtime_env()
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    for rank in range(2):
        actor: Any = Once.remote(rank)  # type: ignore[attr-defined]
        sidecar = ray.get(actor.work.remote(environment["env_vars"]["STEPSCOPE_DIR"]))
        children = [child.pid for child in psutil.Process().children(recursive=True)]
        sys.stdout.write(json.dumps({"sidecar": sidecar, "ours": sidecar in children}) + "\n")
        gone = actor.__ray_terminate__.remote()
        del actor
        ray.wait([gone], timeout=60)
    ray.shutdown()


if __name__ == "__main__":
    main()
