"""
A real Prometheus, started on a free port, and what tests ask of it.

``prometheus()`` scrapes any targets, ``measured()`` a run that is like the demo and costs seconds: three processes, two
roles, samples, one recorded step, by stand-ins for profilers (``measured_loop``). Owns starting and ending; what the
answers should be is the tests'.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.jobs import CLI, environment, eventually
from tests.integration.programs import ROOT
from tests.unit.sidecar.stored import WAIT, holds

EXECUTABLE = shutil.which("prometheus")
PROGRAM = "tests.integration.measured_loop"

JOB = "stepscope"
"""The job that the targets are scraped as."""

RECORDED = "6,12,18,every:120"
"""
Enough steps in between for a figure of what each window cost. Then few, so that nothing waits to be final and keeps a
machine busy, and some now and then, so that there are rates.
"""

PROCESSES = 3
"""Of a measured run, each of which records."""


@dataclass(frozen=True)
class Prometheus:
    """
    One that runs. ``api`` is the base of its API.
    """

    api: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """
        The instant vector that ``expression`` is now; empty while Prometheus still starts.
        """
        data = ask(f"{self.api}/query", query=expression)
        return [{"value": data["result"]}] if data.get("resultType") == "scalar" else list(data["result"])

    def value(self, expression: str) -> float | None:
        """
        The first sample of it.
        """
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def exemplars(self, expression: str) -> list[dict[str, Any]]:
        """
        The exemplars of the series that ``expression`` names.
        """
        answer = ask(f"{self.api}/query_exemplars", query=expression, start="0", end="4102444800")
        return [item for series in answer for item in series["exemplars"]]

    def rules(self) -> list[dict[str, Any]]:
        """
        The rules as they stand, with their health, state and last evaluation.
        """
        return [rule for group in ask(f"{self.api}/rules")["groups"] for rule in group["rules"]]


@contextlib.contextmanager
def prometheus(
    folder: Path, *, targets: Sequence[str], rules: Path | None = None, alertmanager: str = "", interval: str = "1s"
) -> Iterator[Prometheus]:
    """
    A running Prometheus with its data in ``folder``; it scrapes ``targets`` and evaluates ``rules`` each ``interval``.

    ``targets`` and ``alertmanager`` are host:port.
    """
    if EXECUTABLE is None:
        pytest.skip("Debian's prometheus is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    configuration: dict[str, Any] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": list(targets)}]}],
    }
    if rules is not None:
        configuration["rule_files"] = [str(rules)]
    if alertmanager:
        configuration["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(configuration))  # which is YAML, too
    options = [f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"]
    command = [EXECUTABLE, *options, "--enable-feature=exemplar-storage"]
    with listening(command, log=folder / "prometheus.log", sign=r'msg="Listening on" address=(\S+)') as address:
        yield Prometheus(f"http://{address}/api/v1")


@contextlib.contextmanager
def listening(command: Sequence[str], *, log: Path, sign: str) -> Iterator[str]:
    """
    Run ``command`` until the block ends; what the group in ``sign`` matches in its ``log`` is where it listens.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        found: list[str] = []

        def listens() -> bool:
            assert process.poll() is None, log.read_text()
            match = re.search(sign, log.read_text())
            found[:] = [match[1]] if match else []
            return bool(found)

        assert holds(listens), log.read_text()
        yield found[0]
    finally:
        process.terminate()
        process.wait(WAIT)


def ask(url: str, **arguments: str) -> Any:
    """
    The data of one answer of Prometheus' API.
    """
    try:
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(arguments)}", timeout=WAIT) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:  # still starting
            return {"result": [], "groups": []}
        raise AssertionError(f"{arguments}: {error.read().decode()}") from error


def target(folder: Path) -> str:
    """
    host:port of the sidecar whose runs are in ``folder``; "" while there is none.
    """
    for path in folder.glob("latest/sidecar.json"):
        return str(json.loads(path.read_text())["http"]).removeprefix("http://")
    return ""


class MeasuredRun:
    """
    A run of ``measured_loop`` under ``stepscope run`` that waits to be told to begin.
    """

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self.folder = folder
        """Its STEPSCOPE_DIR."""
        self.target = ""
        """host:port of its sidecar."""

    def go(self) -> None:
        """
        Have it begin its steps.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def errors(self) -> str:
        """
        What it said, once it has ended.
        """
        return (self.folder / "errors.log").read_text()

    def listens(self) -> bool:
        """
        Whether its sidecar listens, and is our target.
        """
        assert self._process.poll() is None, self.errors()
        self.target = target(self.folder)
        return bool(self.target)


@contextlib.contextmanager
def running(folder: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> Iterator[MeasuredRun]:
    """
    A run of ``measured_loop ARGUMENTS`` with its runs in ``folder``; its sidecar listens, its steps are not made yet.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = {"STEPSCOPE_STEPS": RECORDED, "STEPSCOPE_TOOLS": "x-slow", "STEPSCOPE_RANKS": "all", **(settings or {})}
    with (folder / "errors.log").open("w") as errors:
        process = subprocess.Popen(
            [*CLI, "run", "--", sys.executable, "-m", PROGRAM, *arguments],
            cwd=ROOT,
            env=environment(folder, **given),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
    found = MeasuredRun(process, folder)
    try:
        eventually(found.listens)
        yield found
    finally:
        # Its standard input ends, and with it the run.
        process.communicate(timeout=60)
    assert 0 == process.returncode, found.errors()


@contextlib.contextmanager
def measured(folder: Path) -> Iterator[tuple[Prometheus, MeasuredRun]]:
    """
    A Prometheus that has scraped a run like the demo's from its first step until a window's cost was known; both run.
    """
    with (
        running(folder / "runs") as run,
        prometheus(folder / "prometheus", targets=[run.target]) as found,
    ):
        # What begins between two scrapes has no increase that Prometheus could see.
        assert holds(lambda: found.value("sum(stepscope_processes)") == PROCESSES)
        run.go()
        assert holds(lambda: (found.value('sum(stepscope_windows_total{outcome="ready"})') or 0.0) >= PROCESSES)
        assert holds(lambda: found.value("count(stepscope_profiling_overhead_ratio)") == 2.0)
        yield found, run
