"""
What a run left behind: its recordings, each with the step it is named for and the markers that are in it.

Owns reading files. Which recording is meant for which step is told by who made it; whether that is so is for the
columns to judge.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.bench.windows.actors import VERL_FILES
from tests.bench.windows.setting import Setting, Way
from tests.bench.windows.truth import PREFIX
from tests.bench.windows.verl import ABOUT

CLI = [sys.executable, "-m", "stepscope_sidecar.cli"]

LIST_SECONDS = 60.0
"""Reading a store of some hundred rows takes one; the machine may be busy."""

VERL_STEP = re.compile(r"_step(\d+)_")
OUR_STEP = re.compile(r"/step-(\d{6})/")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """
    One file. ``named`` is the step in its name, None where there is none; ``meant`` the one that it was made for.
    """

    role: str
    rank: int
    meant: int
    named: int | None
    markers: frozenset[str]


def find(setting: Setting) -> Sequence[Recording]:
    """
    The recordings of a run that has ended.
    """
    if setting.way.ours:
        return [_ours(setting, window) for window in windows(setting) if window["artifact"]]
    return [_theirs(about) for about in sorted((setting.path / VERL_FILES).glob("*" + ABOUT))]


def windows(setting: Setting) -> Sequence[Mapping[str, Any]]:
    """
    What ``stepscope windows --json`` prints.
    """
    done = subprocess.run(
        [*CLI, "windows", "--json"],
        env={**os.environ, **setting.environment()},
        capture_output=True,
        text=True,
        timeout=LIST_SECONDS,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def markers(trace: Mapping[str, Any], *, operators: bool) -> frozenset[str]:
    """
    The names of the markers in ``trace``; with ``operators`` of those only that hold one.
    """
    begun: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    marks = []
    for event in trace["traceEvents"]:
        if event.get("ph") != "X":
            continue
        if event.get("cat") == "cpu_op":
            begun[event["pid"], event["tid"]].append(float(event["ts"]))
        elif str(event["name"]).startswith(PREFIX):
            marks.append(event)
    for times in begun.values():
        times.sort()
    return frozenset(mark["name"] for mark in marks if not operators or _holds_one(mark, begun))


def _holds_one(mark: Mapping[str, Any], begun: Mapping[tuple[Any, Any], Sequence[float]]) -> bool:
    times = begun.get((mark["pid"], mark["tid"]), ())
    first = bisect_left(times, float(mark["ts"]))
    return first < len(times) and times[first] <= float(mark["ts"]) + float(mark["dur"])


def _ours(setting: Setting, window: Mapping[str, Any]) -> Recording:
    path = Path(window["artifact"])
    trace = _load(path)
    name = OUR_STEP.search(str(path))
    # Told twice, in its path and inside: it is named for a step when both say the same.
    inside = str(trace.get("stepscope.step", ""))
    named = int(name[1]) if name is not None and inside == str(int(name[1])) else None
    return Recording(
        role=window["role"],
        rank=window["rank"],
        meant=window["step"],
        named=named,
        markers=markers(trace, operators=setting.way is Way.OPS),
    )


def _theirs(about: Path) -> Recording:
    told = json.loads(about.read_text())
    path = about.with_name(about.name.removesuffix(ABOUT))
    name = VERL_STEP.search(path.name)
    return Recording(
        role=told["role"],
        rank=told["rank"],
        meant=told["meant"],
        named=int(name[1]) if name is not None else None,
        markers=markers(_load(path), operators=True),
    )


def _load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(gzip.decompress(path.read_bytes()))
    return found
