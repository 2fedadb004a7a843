"""
A trainer with three recorded workers that loses, in the middle of a step each: a worker to ``ray.kill``, a worker to
``kill -9``, and the sidecar.

Run as ``python -m tests.integration.ray_losses`` under ``stepscope run``, which starts the sidecar again. Prints what
the training comes to.
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import ray

import stepscope
from stepscope.integrations import ray as stepscope_ray
from stepscope.integrations.ray import call, traced

PATIENCE = 60.0
"""Seconds for the sidecar to be there again; it takes about two."""


@ray.remote(num_cpus=0)
@traced
class Worker:
    """
    Works, and says which process it is.
    """

    def __init__(self, rank: int) -> None:
        stepscope.init(role="worker", rank=rank)

    def pid(self) -> int:
        return os.getpid()

    def work(self) -> None:
        with stepscope.span("work"):
            pass

    def close(self) -> None:
        stepscope.shutdown()


def announced() -> dict[str, Any]:
    """
    What the sidecar wrote down about itself.
    """
    found: dict[str, Any] = json.loads((Path(os.environ["STEPSCOPE_DIR"]) / "latest" / "sidecar.json").read_text())
    return found


def wait_for_another(lost: int) -> None:
    """
    Wait until another sidecar than ``lost`` knows of the trainer and of the worker that lives.
    """
    end = time.monotonic() + PATIENCE
    pause = threading.Event()
    while time.monotonic() < end:
        found = announced()
        if found["pid"] != lost:
            with urllib.request.urlopen(f"{found['http']}/api/status", timeout=PATIENCE) as answer:
                if {("trainer", 0), ("worker", 2)} <= {
                    (process["role"], process["rank"])
                    for process in json.load(answer)["processes"]
                    if process["connected"]
                }:
                    return
        pause.wait(0.1)
    raise AssertionError("no sidecar came back")


def main() -> None:
    """
    Four steps; each of the first three loses something.
    """
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=stepscope_ray.runtime_env())
    stepscope.init(role="trainer")
    workers: dict[int, Any] = {rank: Worker.remote(rank) for rank in range(3)}  # type: ignore[attr-defined]
    pids = {rank: ray.get(worker.pid.remote()) for rank, worker in workers.items()}
    lost = announced()["pid"]
    done = 0
    for version in range(1, 5):
        with stepscope.step():
            done += len(ray.get([call(worker.work) for worker in workers.values()]))
            if version == 1:
                ray.kill(workers.pop(0))
            elif version == 2:
                del workers[1]
                os.kill(pids[1], signal.SIGKILL)
            elif version == 3:
                os.kill(lost, signal.SIGKILL)
            done += len(ray.get([call(worker.work) for worker in workers.values()]))
            stepscope.weights_published(version)
        if version == 3:
            # The worker's window is open still: it ends with the first call of the next step.
            wait_for_another(lost)
    ray.get([call(worker.close) for worker in workers.values()])
    sys.stdout.write(json.dumps({"done": done}) + "\n")
    stepscope.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
