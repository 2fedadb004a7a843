"""
Runs of the loop, each in a process of its own, and what came of them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.windows import recordings, truth
from tests.bench.windows.actors import LOGS
from tests.bench.windows.columns import Judgement, judge
from tests.bench.windows.recordings import CLI, Recording
from tests.bench.windows.setting import Scenario, Setting, Way
from tests.bench.windows.truth import Record

ROOT = Path(__file__).parents[3]

RUN_SECONDS = 600.0
"""A whole run takes under a minute on two quiet cores."""

CLOSE_SECONDS = 30.0
"""For a run that was told to end; Ray and the sidecar take some."""

SAID = 3000
"""Characters of what a failed run said last: a traceback of Ray's with the actor's own in it."""

AT_ONCE = 2
"""Runs about endings measure no time, so that two may share the machine."""

ENDINGS = (Scenario.EXCEPTION, Scenario.LAST_STEP, Scenario.RESUME)


class RunError(RuntimeError):
    """
    A run did not get through; the message holds the end of what it said.
    """


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """
    What one run came to.
    """

    setting: Setting
    records: Sequence[Record]
    recordings: Sequence[Recording]
    states: Sequence[str] = ()

    @property
    def judgements(self) -> dict[str, Judgement]:
        """
        By role.
        """
        return {each.role: judge(each, self.recordings, selected=self.setting.selected) for each in self.records}

    @property
    def left_on(self) -> int:
        """
        Profilers that are on in its processes after their part is over.
        """
        return sum(record.left_on for record in self.records)

    @property
    def stops_without_start(self) -> int:
        """
        Stops of what was not started.
        """
        return sum(record.stops_without_start for record in self.records)

    @property
    def errors(self) -> dict[str, int]:
        """
        All that there may be none of, summed over its processes, by name.
        """
        summed: dict[str, int] = {}
        for judgement in self.judgements.values():
            for name, count in judgement.errors.items():
                summed[name] = summed.get(name, 0) + count
        not_ready = sum(state != "ready" for state in self.states)
        return {
            **summed,
            "left_on": self.left_on,
            "stops_without_start": self.stops_without_start,
            "windows_not_ready": not_ready,
        }


@dataclass(frozen=True, kw_only=True)
class Column:
    """
    All runs of one way with so many mini-batches per step.
    """

    whole: Outcome
    endings: Mapping[Scenario, Outcome] = field(default_factory=dict)

    @property
    def way(self) -> Way:
        """
        How they were profiled.
        """
        return self.whole.setting.way

    @property
    def mini_batches(self) -> int:
        """
        Per step.
        """
        return self.whole.setting.mini_batches

    @property
    def errors(self) -> dict[str, int]:
        """
        Those that are not 0, each with the run that it was found in.
        """
        outcomes = {Scenario.WHOLE: self.whole, **self.endings}
        return {
            f"{name} ({scenario})": count
            for scenario, outcome in outcomes.items()
            for name, count in outcome.errors.items()
            if count
        }


def run(setting: Setting) -> Outcome:
    """
    Run the loop as ``setting`` says.

    Raises:
        RunError: it failed.
    """
    setting.path.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.bench.windows.loop", setting.dump()]
    if setting.way.ours:
        command = [*CLI, "run", "--", *command]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("STEPSCOPE_", "OTEL_"))}
    path = os.pathsep.join([str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])])
    code, said = _ended(command, environment={**inherited, **setting.environment(), "PYTHONPATH": path})
    if code != 0:
        raise RunError(f"{setting.way}, {setting.scenario}: exit code {code}\n{said[-SAID:]}")
    return Outcome(
        setting=setting,
        records=truth.read(setting.path / LOGS),
        recordings=recordings.find(setting),
        states=[window["state"] for window in recordings.windows(setting)] if setting.way.ours else (),
    )


def _ended(command: Sequence[str], *, environment: Mapping[str, str]) -> tuple[int, str]:
    """
    Exit code of ``command``, and what it said on stderr; it and its children are ended if it takes too long.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A process group of its own, so that all of it can be told to end.
        start_new_session=True,
    )
    _running.add(process)
    try:
        _, said = process.communicate(timeout=RUN_SECONDS)
    except BaseException:
        _end(process)
        raise
    finally:
        _running.discard(process)
    return process.returncode, said


_running: "set[subprocess.Popen[str]]" = set()
"""Runs that go on, for whoever is told to end."""


def _end(process: "subprocess.Popen[str]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=CLOSE_SECONDS)
            return


def endings(settings: Sequence[Setting], *, folder: Path) -> list[dict[Scenario, Outcome]]:
    """
    For each of ``settings``, the short runs of the same kind that end by an exception, with the last step, and resume.
    """

    def of(setting: Setting) -> dict[Scenario, Outcome]:
        found: dict[Scenario, Outcome] = {}
        for scenario in ENDINGS:
            place = folder / f"{setting.way}-{setting.mini_batches}-{scenario.name.lower()}"
            # What is resumed are the checkpoints of the run before.
            before = found.get(Scenario.LAST_STEP)
            checkpoints = before.setting.config.checkpoints if before else ""
            found[scenario] = run(setting.ending(scenario, folder=place, checkpoints=checkpoints))
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [pool.submit(of, setting) for setting in settings]
        try:
            return [each.result() for each in found]
        except BaseException:
            # The first failure, or an interrupt: the others need not be waited for.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_running):
                _end(process)
            raise
