"""
Many windows in one process while three of its threads train, ended in every way there is.

Run as ``python -m tests.integration.soak WINDOWS``. The rows say what of the process's own has grown, from when it had
found its size until the end.
"""

import ctypes
import gc
import itertools
import json
import os
import sys
import threading
import urllib.request
from pathlib import Path

import torch

import stepscope
from stepscope import registration

SETTLED = 3
"""After this share of the windows (one third) the process has its size: allocators, caches and threads."""

CAPPED, STOPPED = 20, 15
"""Every so many windows one runs until a cap, and one until somebody stops everything."""

QUIET = 20
"""So many looks at the heap, each a twentieth of a second after the one before, find nothing more given back."""

PATIENT_STEPS = 5
"""Steps for each window: on an idle machine every one has its window."""

PATIENCE = 60.0
"""Seconds for what takes one on an idle machine."""


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """
    A forward, a backward and a step.
    """
    optimizer.zero_grad()
    model(torch.ones(8, 16)).square().mean().backward()
    optimizer.step()


def loop(over: threading.Event, pause: threading.Event) -> None:
    """
    Train, with spans, until it is over.
    """
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while not over.is_set():
        with stepscope.span("soak.other", bucket="productive"):
            train(model, optimizer)
        # Else three threads would leave the boundary's own no turn on two cores.
        pause.wait(0.002)


def order(path: str, **body: str) -> None:
    """
    Give the sidecar of this run an order, as a person would.
    """
    folder = Path(os.environ["STEPSCOPE_DIR"]) / f"{os.environ['STEPSCOPE_RUN']}-{os.environ['STEPSCOPE_ATTEMPT']}"
    http = json.loads((folder / "sidecar.json").read_text())["http"]
    request = urllib.request.Request(
        http + path, data=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        answer.read()


def recording() -> bool:
    """
    Whether a window records now.
    """
    session = registration.session
    return session is not None and session.agent.windows.recording


class Mallinfo(ctypes.Structure):
    """
    What glibc tells of its heaps, in bytes where not counts.
    """

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap() -> int:
    """
    Bytes that this process holds in the heaps of C, its mapped blocks included.

    Not the resident ones: what one long recording leaves free in an arena stays resident, by chance.
    """
    told = ctypes.CDLL(None).mallinfo2
    told.restype = Mallinfo
    found = told()
    return int(found.uordblks + found.hblkhd)


def settled(pause: threading.Event) -> int:
    """
    The heap without what still is on its way out: the least of it, once it has fallen no further for a while.
    """
    least, since = heap(), 0
    while since < QUIET:
        pause.wait(0.05)
        found = heap()
        least, since = min(least, found), 0 if found < least else since + 1
    return least


def size(pause: threading.Event) -> dict[str, int]:
    """
    Bytes in use, Python's small blocks, threads and descriptors of this process.
    """
    gc.collect()
    return {
        "heap": settled(pause),
        "blocks": sys.getallocatedblocks(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


def main(windows: int) -> None:
    """
    One window a step, in the midst of three threads.
    """
    torch.set_num_threads(1)
    stepscope.init(role="trainer")
    over, pause = threading.Event(), threading.Event()
    threads = [threading.Thread(target=loop, args=(over, pause)) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        steps(windows, pause)
    finally:
        over.set()


def steps(windows: int, pause: threading.Event) -> None:
    """
    The loop. It leaves with the last window open, while the other threads train.
    """
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before: dict[str, int] = {}
    count = 0
    for step in range(1, PATIENT_STEPS * windows):
        # A machine that is too busy to answer within a second costs a window, not the step.
        after = size(pause) if count == windows - 1 else {}
        with stepscope.step():
            opened = recording()
            count += opened
            if not opened:
                # What is too busy to answer has time to become less so.
                pause.wait(0.5)
            with stepscope.span("soak.train", bucket="productive"):
                train(model, optimizer)
            if count == windows:
                print(json.dumps({"before": before, "after": after}), flush=True)
                sys.exit(0)
            stops, capped = opened and count % STOPPED == 0, opened and count % CAPPED == 0
            if stops:
                order("/api/stop")
            for _ in itertools.takewhile(lambda _: recording(), range((stops or capped) * int(PATIENCE / 0.005))):
                with stepscope.span("soak.train", bucket="productive"):
                    train(model, optimizer)
                pause.wait(0.005)
            stepscope.weights_published(step)
        if stops:
            order("/api/profile", steps="every:1")
        if opened and count == windows // SETTLED:
            before = size(pause)


if __name__ == "__main__":
    main(int(sys.argv[1]))
