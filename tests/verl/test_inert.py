"""
Installed beside verl with nothing configured: as if it were not there.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.verl.running import program

PAIRS = 3
"""Of fresh processes, with the plugin and without, one after the other."""

RATIO = 1.5
"""Of verl's import with the plugin to that without, in processor time: 1.0 but for what a loaded machine does to it."""

SHARE = 0.05
"""Of verl's import that the plugin itself takes, in the same process, so that load weighs on both: a hundredth."""

LOOK = """
import importlib.metadata, json, sys, threading, time
ours, load = 0.0, importlib.metadata.EntryPoint.load
def timed(point):
    global ours
    begun = time.process_time()
    try:
        return load(point)
    finally:
        ours += (time.process_time() - begun) * (point.name == "stepscope")
importlib.metadata.EntryPoint.load = timed
begun = time.process_time()
import verl
whole = time.process_time() - begun
loaded = "stepscope.integrations.verl.plugin" in sys.modules
threads = sorted(thread.name for thread in threading.enumerate())
if loaded:
    # All that the table names, but for engines.
    import verl.trainer.ppo.v1, verl.workers.engine_workers
    import verl.experimental.fully_async_policy.fully_async_trainer
finders = [type(finder).__module__ for finder in sys.meta_path if type(finder).__module__.startswith("stepscope")]
from importlib import import_module
from stepscope.integrations.verl import patching, targets
marked = []
for module, rows in targets.by_module().items():
    if module in sys.modules:
        for row in rows:
            owner = sys.modules[module]
            for part in row.where.split("."):
                owner = getattr(patching.owner_of(owner), part, None)
            if hasattr(owner, patching.MARK):
                marked.append(row.where)
found = {"whole": whole, "ours": ours, "loaded": loaded, "threads": threads, "finders": finders, "marked": marked}
print(json.dumps(found))
"""

SETTINGS: tuple[dict[str, str], ...] = ({}, {"STEPSCOPE_DISABLED": "1", "STEPSCOPE_STEPS": "2"}, {})
"""Of the process of each pair that loads the plugin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Looked:
    """
    What a fresh process that has imported verl says of itself.
    """

    found: dict[str, Any]
    lines: int
    errors: str


def look(folder: Path, **settings: str) -> Looked:
    """
    Import verl in one.
    """
    done = program(folder, "-c", LOOK, **settings)
    assert 0 == done.returncode, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    return Looked(found=json.loads(lines[-1]), lines=len(lines), errors=done.stderr)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Looked, Looked]]:
    """
    With the plugin, and without, in turn.
    """
    folder = tmp_path_factory.mktemp("inert")
    return [(look(folder, **told), look(folder, VERL_USE_EXTERNAL_PLUGINS="none")) for told in SETTINGS]


@pytest.mark.parametrize("number", range(PAIRS))
def test_without_settings_verl_is_as_it_is(pairs: list[tuple[Looked, Looked]], number: int) -> None:
    """
    verl loads the plugin, and that is all: no wrapper, no thread, nothing in the import system, no output.
    """
    ours, without = pairs[number]

    assert ours.found["loaded"]
    assert not without.found["loaded"]
    assert ([], []) == (ours.found["marked"], ours.found["finders"])
    assert without.found["threads"] == ours.found["threads"]
    assert without.lines == ours.lines
    assert "stepscope" not in ours.errors


def test_verls_import_takes_as_long_as_without(pairs: list[tuple[Looked, Looked]]) -> None:
    """
    In processor seconds: the medians of fresh processes, and the part of it that is the plugin's.
    """
    with_it, without = (median(pair[which].found["whole"] for pair in pairs) for which in (0, 1))
    share = median(ours.found["ours"] / ours.found["whole"] for ours, _ in pairs)
    sys.stdout.write(f"verl's import with the plugin {with_it / without:.3f} of that without; its share {share:.4f}\n")

    assert 0.0 < share < SHARE
    assert RATIO > with_it / without


def test_verls_own_profiling_is_left_alone_where_ours_is_off(tmp_path: Path) -> None:
    """
    Its profilers are started and stopped in the steps of ``global_profiler.steps``.
    """
    source, target = tmp_path / "scenarios.json", tmp_path / "found.json"
    scenario = {"steps": 3, "environment": {}, "overrides": ["global_profiler.steps=[2]"]}
    source.write_text(json.dumps({"off": scenario}))
    done = program(tmp_path, "-m", "tests.verl.v1_job", str(source), str(target))
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(target.read_text())["off"]

    assert (1, 1) == (found["workers"].count("start_profile"), found["workers"].count("stop_profile"))
    assert [] == found["spans"]
