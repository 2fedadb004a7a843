"""
A Ray that runs already, for programs that come to it one after another; it knows nothing of any run.

Its process is ``python -m tests.integration.ray_cluster``: prints the address, and ends with its standard input.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.programs import PROGRAM_DEADLINE, ROOT

ANSWER = "address "
"""What the line begins with that tells it; Ray has lines of its own."""


@contextmanager
def running() -> Iterator[str]:
    """
    The address of one, until the block is left.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.ray_cluster"],
        cwd=ROOT,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as cluster:
        assert cluster.stdout is not None
        found = ""
        while not found.startswith(ANSWER):
            found = cluster.stdout.readline()
            assert found, "the cluster has ended"
        yield found.removeprefix(ANSWER).strip()
        cluster.communicate("", timeout=PROGRAM_DEADLINE)


def main() -> None:
    """
    One node.
    """
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        sys.stdout.write(f"{ANSWER}{cluster.address}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
