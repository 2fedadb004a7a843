"""
Waiting, in a program on Ray, for what its workers have yet to tell: Ray ends them with the program.
"""

import json
import os
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

KINDS = {
    "plain": 1,
    "static": 1,
    "stream": 2,
    "async": 3,
    "async-stream": 2,
    "threaded": 3,
    "outer": 1,
    "task": 1,
    "other-task": 1,
    "task-stream": 2,
    "placed": 1,
    "options": 1,
}
"""Kinds of calls in ``ray_contexts``, and how many spans of work each leaves in a step."""

NESTED = {"inner": 1, "nested-task": 1}
"""The same of calls that are made in another."""

PATIENCE = 60.0
"""Seconds for spans to arrive; it takes hundredths of one."""


def wait_for_spans(step: int, counts: Mapping[str, int]) -> None:
    """
    Wait until the sidecar has so many spans of each name in ``step``.
    """
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while not Counter(counts) <= (found := _names(step)):
        if time.monotonic() > end:
            raise AssertionError(f"of step {step} there are {found}")
        pause.wait(0.1)


def _names(step: int) -> Counter[str]:
    place = json.loads((Path(os.environ["STEPSCOPE_DIR"]) / "latest" / "sidecar.json").read_text())
    with urllib.request.urlopen(f"{place['http']}/api/spans?step={step}", timeout=PATIENCE) as answer:
        return Counter(span["name"] for span in json.load(answer))
