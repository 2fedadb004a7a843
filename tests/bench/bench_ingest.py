"""
Spans per second taken over OTLP/HTTP on loopback in batches of 512: ours, durable, beside rotel, which keeps nothing.

The sender runs in this process, the receiver in one of its own: our sidecar as it is started beside a job, and rotel
(where STEPSCOPE_TEST_ROTEL names it) with its blackhole exporter. Rounds alternate; figures are medians. A request of
ours counts when it was answered, after the commit. How fast received spans become rows is a figure of its own: that
goes on between and after acknowledgements.
"""

import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.machine import describe, table
from tests.integration.jobs import eventually
from tests.unit.sidecar.bodies import ATTEMPT, batch

SPANS = 512
"""In one request: the batch of the SDK's processor."""

REQUESTS = 60
"""In one round, about half a second's worth."""

ROUNDS = 5

SENDERS = 2
"""Connections in parallel, as two processes of a job would have."""

AIM = 50_000

DEADLINE = 120.0
"""Seconds that a start, or reading a round into rows, may take."""


def main() -> int:
    """
    Measure and print.
    """
    bodies = [batch(SPANS, first=1 + SPANS * number) for number in range(REQUESTS * ROUNDS * 2)]
    plain, packed = bodies[: REQUESTS * ROUNDS], [gzip.compress(body, 1) for body in bodies[REQUESTS * ROUNDS :]]
    rotel = os.environ.get("STEPSCOPE_TEST_ROTEL", "")
    kinds = {"plain": (plain, {}), "gzip": (packed, {"Content-Encoding": "gzip"})}
    rates: dict[tuple[str, str], list[float]] = {}
    rows: list[float] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        url, store = stack.enter_context(sidecar(Path(folder)))
        theirs = stack.enter_context(foreign(rotel, Path(folder))) if rotel else ""
        for kind, (content, headers) in kinds.items():
            for number in range(ROUNDS):
                part = content[number * REQUESTS : (number + 1) * REQUESTS]
                rates.setdefault(("stepscope", kind), []).append(send(url, part, headers))
                began = time.monotonic()
                left = until_read(store)
                if left:
                    rows.append(left / (time.monotonic() - began))
                if theirs:
                    rates.setdefault(("rotel", kind), []).append(send(theirs, part, headers))
    print(table("spans received per second, batches of 512", figures(rates, rows), note=note(bodies[0])))
    return 0


def note(body: bytes) -> str:
    """
    What it was measured on and with.
    """
    versions = describe("uvicorn", "starlette", "protobuf")
    return (
        f"{versions}, SQLite {sqlite3.sqlite_version}, {rotel_version()}\n"
        f"{SENDERS} connections, {REQUESTS} requests a round, {ROUNDS} rounds, {len(body) // SPANS} bytes a span;"
        f" the machine's load was {os.getloadavg()[0]:.1f}"
    )


def figures(rates: dict[tuple[str, str], list[float]], rows: list[float]) -> list[tuple[str, ...]]:
    """
    The lines of the table.
    """
    lines: list[tuple[str, ...]] = [("receiver", "body", "spans/s", "range", "against rotel", "aim")]
    for (name, kind), found in rates.items():
        middle = statistics.median(found)
        other = rates.get(("rotel", kind))
        ratio = f"{middle / statistics.median(other):.2f}x" if other and name != "rotel" else "-"
        what = "stepscope, durable" if name == "stepscope" else "rotel, kept nowhere"
        aim = f"{AIM:,}" if name == "stepscope" else "-"
        lines.append((what, kind, f"{middle:,.0f}", f"{min(found):,.0f} to {max(found):,.0f}", ratio, aim))
    if rows:
        middle = statistics.median(rows)
        lines.append(("stepscope, into rows", "-", f"{middle:,.0f}", f"{min(rows):,.0f} to {max(rows):,.0f}", "-", "-"))
    return lines


def send(url: str, bodies: list[bytes], headers: dict[str, str]) -> float:
    """
    Send ``bodies`` over parallel connections; spans per second until the last answer.
    """
    start = threading.Barrier(SENDERS + 1)
    failed: list[str] = []

    def work(part: list[bytes]) -> None:
        address = urlsplit(url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=DEADLINE)
        connection.connect()
        start.wait()
        try:
            for body in part:
                connection.request(
                    "POST", "/v1/traces", body=body, headers={"Content-Type": "application/x-protobuf", **headers}
                )
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    failed.append(f"{answer.status} {answer.reason}")
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(bodies[number::SENDERS],)) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failed:
        raise SystemExit(f"{url} refused {len(failed)} requests: {failed[0]}")
    return len(bodies) * SPANS / took


def until_read(store: Path) -> int:
    """
    Wait until the inbox is empty; says how many spans were in it.
    """
    connection = sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)
    try:

        def left() -> int:
            return int(connection.execute("SELECT coalesce(sum(spans), 0) FROM inbox").fetchone()[0])

        first = left()
        eventually(lambda: not left(), deadline=DEADLINE)
        return first
    finally:
        connection.close()


@contextlib.contextmanager
def sidecar(folder: Path) -> Iterator[tuple[str, Path]]:
    """
    Our sidecar: its OTLP endpoint and its store.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(("STEPSCOPE_", "OTEL_"))}
    paths = os.pathsep.join(path for path in sys.path if path)
    settings = {"STEPSCOPE_DIR": str(folder), "STEPSCOPE_RUN": "bench", "STEPSCOPE_ATTEMPT": ATTEMPT}
    process = subprocess.Popen(
        [sys.executable, "-m", "stepscope_sidecar", "--attended", "yes"],
        env={**own, "PYTHONPATH": paths, **settings, "STEPSCOPE_SOCKET": str(folder / "socket")},
        stderr=subprocess.DEVNULL,
    )
    attempt = folder / f"bench-{ATTEMPT}"
    try:
        eventually(lambda: (attempt / "sidecar.json").exists() or process.poll() is not None, deadline=DEADLINE)
        if process.poll() is not None:
            raise SystemExit(f"the sidecar ended at its start with code {process.returncode}")
        endpoint = str(json.loads((attempt / "sidecar.json").read_text())["otlp_http"])
        yield endpoint, attempt / "stepscope.db"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)


@contextlib.contextmanager
def foreign(executable: str, folder: Path) -> Iterator[str]:
    """
    Rotel with its blackhole exporter; its OTLP endpoint.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            *(executable, "start", "--exporter", "blackhole", "--pid-file", str(folder / "rotel.pid")),
            *("--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", "127.0.0.1:0"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        eventually(answers, deadline=DEADLINE)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(DEADLINE)


def rotel_version() -> str:
    """
    The version of rotel's package, read beside its executable.
    """
    executable = Path(os.environ.get("STEPSCOPE_TEST_ROTEL", ""))
    found = list(executable.resolve().parent.parent.glob("rotel-*.dist-info")) if executable.name else []
    return found[0].name.removesuffix(".dist-info").replace("-", " ") if found else "rotel absent"


if __name__ == "__main__":
    raise SystemExit(main())
