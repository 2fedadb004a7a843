"""
The series of a sidecar that was killed, and of the one that takes over: the same, but for what tells of the process.
"""

import subprocess
import sys
from pathlib import Path

import httpx
from prometheus_client import parser

from stepscope import names, wire
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.lifecycle import tree_bytes
from tests.integration.agent import Agent
from tests.integration.jobs import SETTLE_DEADLINE, eventually
from tests.integration.place import Place, placed
from tests.integration.programs import ROOT
from tests.integration.prometheus import PROCESSES, PROGRAM
from tests.unit.sidecar.stored import holds

OF_THE_PROCESS = {
    "stepscope_sidecar_start_timestamp_seconds",
    "stepscope_sidecar_resident_memory_bytes",
    "stepscope_sidecar_cpu_seconds_total",
    "stepscope_sidecar_errors_total",
    "stepscope_sidecar_last_error_timestamp_seconds",
    "stepscope_store_bytes",
    "stepscope_artifact_disk_free_bytes",
    "stepscope_artifact_disk_left_bytes",
}
"""What a new process has anew, or the machine."""

LAST = 1000
"""A step that the run does not come to, so that it is decided after those that it records."""

SELECTED = f"6,12,{LAST}"

RATIOS = [
    (f"stepscope_profiling_{of}overhead_ratio", (("role", role),))
    for of in ("", "wall_")
    for role in ("trainer", "rollouter")
]
"""What is only known once enough steps have been made between those that are recorded."""

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(place: Place) -> Series:
    """
    Every series of the sidecar that listens, and its value.
    """
    answer = httpx.get(f"{place.announced()['http']}/metrics", timeout=60, trust_env=False)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(answer.raise_for_status().text)
        for sample in family.samples
    }


def lasting(series: Series) -> Series:
    """
    Those that a restart leaves as they are.
    """
    return {key: value for key, value in series.items() if key[0] not in OF_THE_PROCESS}


def work(place: Place) -> None:
    """
    A run whose every process records two steps.
    """
    env = {**place.env, "STEPSCOPE_STEPS": SELECTED, "STEPSCOPE_RANKS": "all", "STEPSCOPE_TOOLS": "x-slow"}
    program = subprocess.Popen([sys.executable, "-m", PROGRAM], cwd=ROOT, env=env, stdin=subprocess.PIPE, text=True)
    try:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
        eventually(lambda: _ready(place) == 2 * PROCESSES, deadline=SETTLE_DEADLINE)
        eventually(lambda: scraped(place).keys() >= {*RATIOS}, deadline=SETTLE_DEADLINE)
    finally:
        program.communicate(timeout=60)
    assert 0 == program.returncode


def _ready(place: Place) -> int:
    return sum(row.state == "ready" for row in place.windows())


def test_a_restart_changes_no_series_and_no_total(tmp_path: Path) -> None:
    """
    After a kill, with processes that have ended, one that lives, histograms, and recordings that are missing.
    """
    place = placed(tmp_path)
    place.env |= {"STEPSCOPE_STEPS": SELECTED, "STEPSCOPE_RANKS": "all"}
    ended = ("stepscope_processes", (("role", "trainer"),))
    missing = ("stepscope_missing_ranks", (("role", "critic"),))
    with place.sidecar() as first:
        work(place)
        with Agent(place.socket, role="critic", world_size=2) as critic:
            critic.register()
            critic.send(wire.Version(step=LAST, param_version=LAST - 1))
            critic.send(wire.Missed(step=LAST, param_version=LAST - 1, reason="sidecar_lost", unix_ns=1))
            critic.send(wire.StepClosed(step=LAST))
            critic.send(wire.Version(step=LAST + 1, param_version=LAST))
            critic.send(wire.StepClosed(step=LAST + 1))
            eventually(lambda: scraped(place).get(missing) == 2.0 and scraped(place).get(ended) == 0.0)
            before = eventually(lambda: still(place), deadline=SETTLE_DEADLINE)
            first.kill()
            first.wait(120)
            with place.sidecar():
                after = eventually(lambda: found if (found := scraped(place)).keys() >= before.keys() else None)
                differing = settled(place, before)

    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    assert {} == differing
    assert {name for name, _ in before} >= {m.name for m in names.METRICS if m.kind == "counter" and not m.labels}
    assert 2.0 * (PROCESSES - 1) == before["stepscope_windows_total", _labels("trainer", "ready")]


def settled(place: Place, before: Series) -> dict[str, tuple[float | None, float]]:
    """
    Which series differ, then and now, once none does, or for long.
    """
    wanted = lasting(before)
    differing: dict[str, tuple[float | None, float]] = {}

    def same() -> bool:
        found = lasting(scraped(place))
        differing.clear()
        differing.update(
            {str(key): (found.get(key), value) for key, value in wanted.items() if found.get(key) != value}
        )
        return not differing

    holds(same)
    return differing


def still(place: Place) -> Series | None:
    """
    The series, once two looks find the same, nothing waits, and what is only looked at now and then is how it stands.
    """
    first = scraped(place)
    waiting = sum(value for (name, _), value in first.items() if name == "stepscope_queue_length")
    told = httpx.get(f"{place.announced()['http']}/api/status", timeout=60, trust_env=False).json()
    costs = {role: estimate.json() for role, estimate in Costs(place.attempt / "stepscope.db").refresh().items()}
    stands = told["overhead_estimates"] == costs and tree_bytes(place.attempt) == first[DISK, ()]
    return first if lasting(first) == lasting(scraped(place)) and stands and not waiting else None


DISK = "stepscope_artifact_disk_bytes"


def _labels(role: str, outcome: str) -> tuple[tuple[str, str], ...]:
    return (("outcome", outcome), ("role", role), ("tool", "x-slow"))
