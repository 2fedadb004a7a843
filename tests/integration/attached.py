"""
Programs that are recorded from outside, driven line by line from a test, and how the sidecar is asked about them.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from stepscope_sidecar.rows import WindowRow

from .jobs import CLI, SETTLE_DEADLINE, command_of, eventually
from .place import Place

LOOP = [sys.executable, "-m", "tests.integration.attached_loop"]
ROOT = Path(__file__).parents[2]


@contextmanager
def program(place: Place, *arguments: str, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    """
    The program of this test's own, until the block is left.
    """
    process = subprocess.Popen(
        [*LOOP, *arguments],
        env={**place.env, **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=120)


SAMPLES = 20
"""Of a tool that takes a hundred a second."""


def hear(process: "subprocess.Popen[str]", line: str) -> None:
    """
    Wait for the line that comes next.
    """
    assert process.stdout is not None
    assert f"{line}\n" == process.stdout.readline()


def go_on(process: "subprocess.Popen[str]") -> None:
    """
    Let a step begin or end.
    """
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def begin(process: "subprocess.Popen[str]", step: int) -> None:
    """
    Let ``step`` begin.
    """
    go_on(process)
    hear(process, f"in step {step}")


def end(process: "subprocess.Popen[str]", step: int) -> None:
    """
    Let ``step`` end.
    """
    go_on(process)
    hear(process, f"after step {step}")


def one_step(process: "subprocess.Popen[str]", step: int) -> None:
    """
    Let ``step`` begin and end.
    """
    begin(process, step)
    end(process, step)


def command(place: Place, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """
    What ``stepscope ARGUMENTS`` answers.
    """
    return subprocess.run(
        [*CLI, *arguments], env=place.env, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )


def attach(place: Place, other: "subprocess.Popen[str]") -> None:
    """
    Order that ``other`` is recorded along with rank 0 of the trainer, as the command line does.
    """
    place.post("/api/attach", **{"pid": other.pid, "with": "trainer-0"})


def status(place: Place) -> dict[str, Any]:
    """
    What the sidecar says of itself.
    """
    answer = httpx.get(f"{place.announced()['http']}/api/status", timeout=60, trust_env=False)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def row(place: Place, tool: str, *states: str) -> WindowRow:
    """
    The window of ``tool``, once it is in one of ``states``.
    """
    found = eventually(
        lambda: [row for row in place.windows() if row.tool == tool and row.state in states], deadline=SETTLE_DEADLINE
    )
    return found[0]


def connected(place: Place) -> None:
    """
    Wait until the sidecar knows a process: one that began before it may have gone on without.
    """
    eventually(lambda: any(process["connected"] for process in status(place)["processes"]), deadline=SETTLE_DEADLINE)


def recorded_beside(
    place: Place, sidecar: "subprocess.Popen[str]", trainer: "subprocess.Popen[str]", other: "subprocess.Popen[str]"
) -> WindowRow:
    """
    The window of ``other`` in step 2 of ``trainer``, once the tool of ``sidecar`` has recorded something of it.
    """
    hear(trainer, "registered")
    connected(place)
    hear(other, "busy")
    attach(place, other)
    one_step(trainer, 1)
    begin(trainer, 2)
    found = row(place, "py-spy", "recording")
    sampled(sidecar)
    return found


def recording_of(place: Place, step: int) -> None:
    """
    Wait until a window of ``step`` records.
    """
    eventually(lambda: (step, "recording") in [(row.step, row.state) for row in place.windows()])


def sampled(sidecar: "subprocess.Popen[str]") -> None:
    """
    Wait until the one tool of ``sidecar`` has slept as often as between some samples.

    A signal that comes before has nothing to keep, or only what was seen before the step.
    """
    (tool,) = eventually(lambda: tools_of(sidecar))
    process = psutil.Process(tool)
    before = process.num_ctx_switches().voluntary
    eventually(lambda: process.num_ctx_switches().voluntary > before + SAMPLES)


def content(place: Place, window: WindowRow) -> dict[str, Any]:
    """
    The final recording of ``window``.
    """
    found: dict[str, Any] = json.loads(gzip.decompress((place.folder / window.artifact).read_bytes()))
    return found


def functions(recording: dict[str, Any]) -> set[str]:
    """
    The names of the functions in a speedscope recording.
    """
    return {frame["name"] for frame in recording["shared"]["frames"]}


def tools_of(sidecar: "subprocess.Popen[str]") -> list[int]:
    """
    The tools that a sidecar runs now, finalising apart.
    """
    children = psutil.Process(sidecar.pid).children(recursive=True)
    return [child.pid for child in children if "py-spy" in command_of(child)]
