"""
From entering ``step()`` to armed: asking a real sidecar and starting the profiler, without and with OTLP load.

Every fourth step of a loop is recorded, in a process of its own for each row. Entering is timed from outside (it also
begins the span); the phases are those that the close records state. The load is another process that sends batches of
512 spans over OTLP/HTTP to the same sidecar, ten a second.
"""

import argparse
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.machine import describe, table

WARM_UP = 5
"""Windows not counted: the first in a process imports what the later ones find."""

EVERY = 8
"""A recorded step among so many: back to back, windows would compete with their own finalising."""

THREADS = 1
"""Of torch, as in the reference job: on two cores, a second one spins where the sidecar has to answer."""

PRODUCTS = 10
"""Matrix products in a step, some 20 to 50 ms."""

SPANS = 512
"""In one request of the load: the batch of the SDK's processor."""

PERIOD = 0.1
"""Seconds between two requests of the load."""


def main() -> int:
    """
    Run the loop without and with load, and print the table.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--level", default="spans")
    parser.add_argument("--one", choices=("quiet", "load"), help=argparse.SUPPRESS)
    parser.add_argument("--send", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.send:
        return send(chosen.send)
    if chosen.one:
        return one(chosen.windows, load=chosen.one == "load")
    rows: list[tuple[str, ...]] = [("milliseconds", "p50", "p99", "of")]
    for kind, title in (("quiet", ""), ("load", ", under OTLP load")):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, __file__, "--one", kind, "--windows", str(chosen.windows)],
                env={
                    **os.environ,
                    "STEPSCOPE_DIR": folder,
                    "STEPSCOPE_STEPS": f"every:{EVERY}",
                    "STEPSCOPE_LEVEL": chosen.level,
                    "STEPSCOPE_RUN": "bench",
                },
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            entering = json.loads(done.stdout)
            phases = records(Path(folder))
            if len(phases) < chosen.windows:
                raise SystemExit(f"{kind}: {len(phases)} of {chosen.windows} windows were recorded; no figure is one")
        rows.append(row(f"entering step(), span included{title}", entering[WARM_UP:]))
        rows.append(row(f"to armed: open + start{title}", [each["open"] + each["start"] for each in phases[WARM_UP:]]))
        rows += [row(f"  {name}{title}", [each[name] for each in phases[WARM_UP:]]) for name in ("open", "start")]
    aim = "aim for armed, without OTLP load: p50 2 ms, p99 5 ms"
    note = f"{aim}; level {chosen.level}, {THREADS} torch thread\n{describe('stepscope', 'torch')}"
    print(table("Opening a window", rows, note=note))
    return 0


def one(windows: int, *, load: bool) -> int:
    """
    A loop of short steps, some recorded; prints the seconds that entering each of those took.
    """
    import torch

    import stepscope

    torch.set_num_threads(THREADS)
    stepscope.init(role="trainer", total_steps=windows * EVERY)
    entering = []
    x = torch.ones(512, 512)
    with loading() if load else contextlib.nullcontext():
        for number in range(1, windows * EVERY + 1):
            step = stepscope.step()
            before = time.perf_counter()
            with step:
                if number % EVERY == 0:
                    entering.append(time.perf_counter() - before)
                with stepscope.span("train.update_actor"):
                    for _ in range(PRODUCTS):
                        x = (x @ x).clamp(0, 1)
                stepscope.weights_published(number)
    stepscope.shutdown()
    print(json.dumps(entering))
    return 0


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """
    Another process that sends spans to this run's sidecar, while the block runs.
    """
    [note] = Path(os.environ["STEPSCOPE_DIR"]).glob("bench-*/sidecar.json")
    endpoint = json.loads(note.read_text())["otlp_http"]
    sender = subprocess.Popen([sys.executable, __file__, "--send", endpoint], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        sender.terminate()
        sender.wait()


def send(endpoint: str) -> int:
    """
    Send batches until somebody ends this process.
    """
    from tests.unit.sidecar.bodies import batch

    where = urlsplit(endpoint)
    connection = http.client.HTTPConnection(where.hostname or "127.0.0.1", where.port, timeout=30)
    pause, number = threading.Event(), 0
    while not pause.wait(PERIOD):
        body = batch(SPANS, first=1 + SPANS * number)
        number += 1
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        connection.getresponse().read()
    return 0


def records(folder: Path) -> list[dict[str, float]]:
    """
    The stall by phase of every window, in the order of steps.
    """
    found = sorted(folder.glob("bench-*/step-*/*/torch/closed.json"))
    return [json.loads(path.read_text())["stall"] for path in found]


def row(name: str, seconds: list[float]) -> tuple[str, ...]:
    """
    One line of the table.
    """
    if len(seconds) < 2:
        return (name, "-", "-", str(len(seconds)))
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return (name, f"{statistics.median(seconds) * 1000:.2f}", f"{cuts[98] * 1000:.2f}", str(len(seconds)))


if __name__ == "__main__":
    raise SystemExit(main())
