"""
What profiling costs in a real run whose program knows it, what that figure does, and what becomes of old recordings.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from stepscope_sidecar.costs import Costs
from stepscope_sidecar.reader import open_reader

from .jobs import CLI, command_line, environment, eventually
from .programs import ROOT

STEPS, MORE = 22, 2
PROFILED = (4, 5, 6, 7)
"""Before there are unprofiled steps enough to know what they cost, which would deny some of them."""

LATER = 23
"""Selected as well: entered only when what profiling costs has been seen."""

BOUND = 0.5
"""What profiling may cost."""

DEADLINE = 120.0


@dataclass
class Costly:
    """
    What was seen of the run.
    """

    worked: float
    """Seconds of work in profiled steps, by the program's own clock."""
    took: float
    """Seconds that its stand-in for a profiler slept."""
    status: dict[str, Any]
    metrics: str
    windows: list[dict[str, Any]]
    names: list[str]
    """Of what lies in the attempt's folder."""

    @property
    def estimate(self) -> dict[str, Any]:
        """
        What the status says of the trainer.
        """
        found: dict[str, Any] = self.status["overhead_estimates"]["trainer"]
        return found


def _asked(directory: Path, path: str) -> httpx.Response:
    http = json.loads((directory / "latest" / "sidecar.json").read_text())["http"]
    return httpx.get(f"{http}{path}", timeout=60, trust_env=False)


@pytest.fixture(scope="module")
def costly(tmp_path_factory: pytest.TempPathFactory) -> Costly:
    """
    The run, looked at before its last steps and after its end.
    """
    directory = tmp_path_factory.mktemp("costly")
    settings = {
        "STEPSCOPE_STEPS": ",".join(map(str, (*PROFILED, LATER))),
        "STEPSCOPE_TOOLS": "x-sleeping",
        "STEPSCOPE_MAX_OVERHEAD": str(BOUND),
        "STEPSCOPE_KEEP_BYTES": "1",
    }
    command = [*CLI, "run", "--", sys.executable, "-m", "tests.integration.costly_loop", str(STEPS), str(MORE)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(directory, **settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, process.communicate(timeout=DEADLINE)[1]
            told = json.loads(line)

            store = directory / "latest" / "stepscope.db"

            def seen() -> dict[str, Any] | None:
                with open_reader(store) as reader:
                    if len(reader.spans(name="rl.step.process")) < STEPS:
                        return None
                # Nothing is to come that could change it before the next step is entered.
                settled = Costs(store).refresh().get("trainer")
                found: dict[str, Any] = _asked(directory, "/api/status").json()
                if settled is None or settled.profiled < len(PROFILED):
                    return None
                return found if settled.json() == found["overhead_estimates"].get("trainer") else None

            status = eventually(seen, deadline=DEADLINE)
            known = status["overhead"]["trainer"] is not None
            shown = "stepscope_profiling_overhead_ratio" + ("{" if known else "")
            # Gauges are taken several times a second.
            metrics = eventually(
                lambda: text if shown in (text := _asked(directory, "/metrics").text) else "", deadline=DEADLINE
            )

            def removed() -> bool:
                return [f"step-{PROFILED[-1]:06d}"] == [path.name for path in (directory / "latest").glob("step-*")]

            eventually(removed, deadline=DEADLINE)
            eventually(lambda: not list((directory / "latest").glob(".removed-*")), deadline=DEADLINE)
            process.stdin.write("go on\n")
            process.stdin.flush()
        finally:
            _, errors = process.communicate(timeout=DEADLINE)
    assert 0 == process.returncode, errors
    windows = json.loads(command_line(directory, "windows", "--json"))
    names = [path.name for path in (directory / "latest").iterdir()]
    return Costly(told["worked"], told["took"], status, metrics, windows, names)


def test_the_ratio_is_within_a_tenth_of_the_truth_or_unknown(costly: Costly) -> None:
    """
    Waiting, as long as the work in some steps, is in neither. All surfaces say the same.
    """
    found = costly.estimate
    # What asking for windows takes is the sidecar's to know, and much where others want the cores.
    asking = found["stall_seconds"]["open"] + found["stall_seconds"]["start"]
    truth = (costly.took + asking) / costly.worked
    line = next(
        (line for line in costly.metrics.splitlines() if line.startswith("stepscope_profiling_overhead_ratio{")), ""
    )
    put_in = costly.took / costly.worked
    print(f"truth {truth:.3f} ({put_in:.3f} put in), reported {found['ratio']} +- {found['error']} {found['why']}")

    assert costly.status["overhead"]["trainer"] == found["ratio"]
    assert {"open", "start", "stop"} == set(found["stall_seconds"])
    assert found["stall_seconds"]["stop"] >= len(PROFILED) * 0.4
    if found["ratio"] is None:
        assert found["why"]
    else:
        assert pytest.approx(truth, rel=0.1) == found["ratio"]
        assert pytest.approx(found["ratio"], rel=0.1) == float(line.rpartition(" ")[2])


def test_a_cost_above_the_bound_denies_further_windows(costly: Costly) -> None:
    """
    With its reason: what it is, or, where that is unknown, what it is at least.
    """
    ends = {window["step"]: (window["state"], window["reason"]) for window in costly.windows}
    least = costly.estimate["lower_bound" if costly.estimate["ratio"] is None else "ratio"]
    above = least is not None and least > BOUND

    assert dict.fromkeys(PROFILED, ("ready", "boundary")).items() <= ends.items()
    assert (("denied", "budget_overhead") if above else ("ready", "boundary")) == ends[LATER]


def test_old_recordings_went_and_their_windows_say_why(costly: Costly) -> None:
    """
    Whole steps, while the run went on, the newest excepted.
    """
    told = {window["step"]: (bool(window["artifact"]), window["detail"]) for window in costly.windows}
    why = "the recording was removed: to keep within STEPSCOPE_KEEP_BYTES"

    assert [(False, why)] * 3 == [told[step] for step in PROFILED[:3]]
    assert not [name for name in costly.names if name.startswith(".removed")]
