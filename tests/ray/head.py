"""
A Ray with a dashboard, as ``ray start`` gives it to a machine that others send jobs to.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.jobs import eventually

DEADLINE = 120.0
"""Seconds for Ray with its dashboard to start or to end; it takes about ten, and more on crowded cores."""

FREE = "0"
"""As a port: one that is free. Those of ``ray start`` are fixed, and another's Ray may have them."""

PORTS = ("port", "dashboard-port", "dashboard-agent-listen-port", "min-worker-port", "max-worker-port")


@dataclass(frozen=True, kw_only=True)
class Head:
    """
    The one node of it.
    """

    address: str
    environment: dict[str, str]


@contextmanager
def head() -> Iterator[Head]:
    """
    It runs until the block is left, and knows nothing of any run.
    """
    # Ray makes unix sockets below this folder, whose paths have to stay short.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    environment = {
        **os.environ,
        # A job's ``python``, and ``ray`` itself, are the ones that run these tests.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    options = {
        **dict.fromkeys(PORTS, FREE),
        # Ray refuses 0 for this one, which nobody here asks for anything.
        "ray-client-server-port": str(_free()),
        "node-ip-address": "127.0.0.1",
        "temp-dir": str(folder),
        "num-cpus": "4",
        "object-store-memory": str(100 * 1024**2),
        "include-dashboard": "true",
    }
    process = subprocess.Popen(
        ["ray", "start", "--head", "--block", *(f"--{name}={value}" for name, value in options.items())],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Head(address=eventually(lambda: _address(process, folder), deadline=DEADLINE), environment=environment)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)
        shutil.rmtree(folder, ignore_errors=True)


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _address(process: "subprocess.Popen[bytes]", folder: Path) -> str:
    assert process.poll() is None, "ray start has ended"
    try:
        return (folder / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""
