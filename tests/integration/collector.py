"""
The foreign collector ``rotel`` between two receivers of ours.

What the sidecar under test forwards goes to rotel, and rotel hands it to a second sidecar, which keeps it.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.jobs import CLI, command_line, environment, eventually

BELOW_ANY, PORTS = 20_000, 12_000
"""Ports that are no ephemeral ones (net.ipv4.ip_local_port_range, from 32768 on)."""


@dataclass(frozen=True)
class Collector:
    """
    A running rotel and the receiver behind it.
    """

    endpoint: str
    directory: Path

    def spans(self, *, at_least: int) -> list[dict[str, Any]]:
        """
        What arrived behind rotel, once there are ``at_least`` spans.
        """

        def look() -> list[dict[str, Any]] | None:
            found: list[dict[str, Any]] = json.loads(command_line(self.directory, "spans", "--json"))
            return found if len(found) >= at_least else None

        return eventually(look, deadline=60)


@contextmanager
def receiver(directory: Path) -> Iterator[dict[str, Any]]:
    """
    A sidecar of its own in the foreground; what it wrote down about its endpoints.
    """
    process = subprocess.Popen(
        [*CLI, "sidecar"],
        env=environment(
            directory, STEPSCOPE_RUN="behind", STEPSCOPE_OTLP_HTTP="127.0.0.1:0", STEPSCOPE_OTLP_GRPC="127.0.0.1:0"
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def listening() -> dict[str, Any] | None:
            for path in directory.glob("behind-*/sidecar.json"):
                found: dict[str, Any] = json.loads(path.read_text())
                return found
            return None

        yield eventually(listening)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def free_port() -> int:
    """
    A port that is free and that the kernel gives to nobody who asks for any: for those that cannot report their own.
    """
    # Not of `random`, which begins alike in all processes that run tests.
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port := BELOW_ANY + secrets.randbelow(PORTS)))
            return port


@contextmanager
def collected(directory: Path) -> Iterator[Collector | None]:
    """
    A receiver, and rotel before it; nothing where rotel is not installed.
    """
    executable = os.environ.get("STEPSCOPE_TEST_ROTEL")
    if not executable:
        yield None
        return
    with receiver(directory) as behind:
        port, grpc_port = free_port(), free_port()
        upstream = re.sub(r"/v1/traces$", "", str(behind["otlp_http"]))
        process = subprocess.Popen(
            [
                executable,
                "start",
                "--otlp-http-endpoint",
                f"127.0.0.1:{port}",
                "--otlp-grpc-endpoint",
                f"127.0.0.1:{grpc_port}",
                "--otlp-exporter-endpoint",
                upstream,
                "--otlp-exporter-protocol",
                "http",
            ],
            stdout=sys.stderr,
            stderr=sys.stderr,
        )
        try:

            def listening() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            eventually(listening)
            yield Collector(endpoint=f"http://127.0.0.1:{port}", directory=directory)
        finally:
            process.terminate()
            process.wait(120)
