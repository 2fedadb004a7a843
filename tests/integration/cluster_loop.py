"""
A Ray program on three nodes of this machine, each with a trainer rank, that does what it is told line by line.

``ray.cluster_utils.Cluster`` gives each raylet a name in its environment, and so each node a sidecar of its own. Every
command is answered with one line of JSON.
"""

import json
import os
import sys
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster

import stepscope

NODES = ("n0", "n1", "n2")


@ray.remote(num_cpus=1, max_restarts=0)
class Worker:
    """
    One rank of a trainer.
    """

    def __init__(self, rank: int) -> None:
        stepscope.init(role="trainer", rank=rank, world_size=len(NODES))
        self._step = stepscope.step()
        self._number = 0

    def pid(self) -> int:
        """
        Its process.
        """
        return os.getpid()

    def enter(self) -> None:
        """
        Begin a step, and do half of its work.
        """
        self._number += 1
        self._step = stepscope.step()
        self._step.__enter__()
        self._work()

    def leave(self) -> None:
        """
        Do the other half, and end it.
        """
        self._work()
        stepscope.weights_published(self._number)
        self._step.__exit__(None, None, None)

    def _work(self) -> None:
        with stepscope.span("train.update_actor", bucket="productive"):
            torch.ones(8, 8).matmul(torch.ones(8, 8))


class Program:
    """
    The cluster and the workers that live.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.nodes = {
            name: self.cluster.add_node(
                num_cpus=1,
                resources={name: 1},
                object_store_memory=80 * 1024**2,
                env_vars={"STEPSCOPE_NODE": name},
                include_dashboard=False,
            )
            for name in NODES
        }
        carried = {name: value for name, value in os.environ.items() if name.startswith(("STEPSCOPE_", "OTEL_"))}
        ray.init(address=self.cluster.address, runtime_env={"env_vars": carried}, log_to_driver=False)
        self.workers: dict[str, Any] = {
            name: Worker.options(resources={name: 0.5}).remote(rank)  # type: ignore[attr-defined]
            for rank, name in enumerate(NODES)
        }

    def do(self, command: str, *names: str) -> object:
        """
        Carry out one command.
        """
        if command == "pids":
            return {name: ray.get(worker.pid.remote(), timeout=120) for name, worker in self.workers.items()}
        if command == "gone":
            for name in names:
                del self.workers[name]
        elif command == "remove":
            for name in names:
                self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)
                del self.workers[name]
        else:
            ray.get([getattr(worker, command).remote() for worker in self.workers.values()], timeout=120)
        return None


def main() -> None:
    """
    Obey until the end of the input.
    """
    # Ray writes to standard output what it thinks of nodes that go: answers have a way of their own.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    program = Program()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"answer": program.do(*line.split())}), file=answers, flush=True)
    ray.shutdown()
    program.cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
