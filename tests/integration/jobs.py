"""
The reference job, run as a user runs it: a command line, an environment, and what it leaves behind.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")

JOB_DEADLINE = 400.0
"""Seconds for one small job on two busy cores; it takes about 20."""

BOUNDARY_SECONDS = 20.0
"""Seconds that a step waits for the sidecar's answer: on a machine that runs several jobs at once one may be late."""

SETTLE_DEADLINE = 120.0
"""Seconds until windows have ended that were being finished, at idle priority, when their run ended."""

FINAL = frozenset({"ready", "failed", "denied", "aborted", "expired"})
"""States that do not change."""

CLI = [sys.executable, "-m", "stepscope_sidecar.cli"]
JOB = [sys.executable, "-m", "stepscope_trainer.job", "--json"]


def environment(directory: Path, **settings: str) -> dict[str, str]:
    """
    The environment of a job that keeps its runs in ``directory``.
    """
    return {
        **os.environ,
        "STEPSCOPE_DIR": str(directory),
        "STEPSCOPE_BOUNDARY_SECONDS": f"{BOUNDARY_SECONDS:g}",
        "RAY_AUTH_MODE": "disabled",
        **settings,
    }


def command_line(directory: Path, *arguments: str) -> str:
    """
    What ``stepscope ARGUMENTS`` prints about the runs in ``directory``.
    """
    done = subprocess.run(
        [*CLI, *arguments],
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=JOB_DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Job:
    """
    A job that has ended.
    """

    directory: Path
    code: int
    output: str
    errors: str
    run: str = "latest"
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def store(self) -> Path:
        """
        The store of the attempt.
        """
        return (self.directory / self.run).resolve() / "stepscope.db"

    @cached_property
    def windows(self) -> list[dict[str, Any]]:
        """
        What ``stepscope windows --json`` prints once all have ended; as they are where they do not.
        """
        end, pause = time.monotonic() + SETTLE_DEADLINE, threading.Event()
        while not self.over() and time.monotonic() < end:
            pause.wait(0.2)
        return self.listed()

    def over(self) -> bool:
        """
        Whether all windows have ended.
        """
        return {window["state"] for window in self.listed()} <= FINAL

    def listed(self) -> list[dict[str, Any]]:
        """
        The windows as they are now.
        """
        found: list[dict[str, Any]] = json.loads(command_line(self.directory, "windows", "--json", "--run", self.run))
        return found

    @cached_property
    def spans(self) -> list[dict[str, Any]]:
        """
        What ``stepscope spans --json`` prints once all windows have ended, each of which leaves spans.
        """
        _ = self.windows
        found: list[dict[str, Any]] = json.loads(command_line(self.directory, "spans", "--json", "--run", self.run))
        return found

    def states(self) -> Counter[str]:
        """
        How many windows ended in which state.
        """
        return Counter(window["state"] for window in self.windows)

    def named(self, name: str) -> list[dict[str, Any]]:
        """
        The spans called ``name``.
        """
        return [span for span in self.spans if span["name"] == name]


@dataclass
class Running:
    """
    A job that is running; its rows arrive in ``rows``.
    """

    directory: Path
    process: "subprocess.Popen[str]"
    rows: list[dict[str, Any]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    readers: list[threading.Thread] = field(default_factory=list)

    def wait_for_step(self, step: int) -> None:
        """
        Wait until the job has reported ``step``.
        """
        with self.changed:
            reached = self.changed.wait_for(
                lambda: any(row.get("step", 0) >= step for row in self.rows) or self.process.poll() is not None,
                JOB_DEADLINE,
            )
        assert reached
        assert any(row.get("step", 0) >= step for row in self.rows), "\n".join(self.errors[-30:])

    def end(self) -> Job:
        """
        Wait for the job's end.
        """
        code = self.process.wait(JOB_DEADLINE)
        for reader in self.readers:
            reader.join(30)
        return Job(self.directory, code, "\n".join(self.output), "\n".join(self.errors), rows=self.rows)


@contextmanager
def running(directory: Path, *arguments: str, alone: bool = False, **settings: str) -> Iterator[Running]:
    """
    The reference job, running under ``stepscope run`` (``alone``: without it) until the block is left.
    """
    command = [*JOB, *arguments] if alone else [*CLI, "run", "--", *JOB, *arguments]
    process = subprocess.Popen(
        command,
        env=environment(directory, **settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    job = Running(directory, process)

    def follow_output() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with job.changed:
                job.output.append(line.rstrip())
                if line.startswith("{"):
                    job.rows.append(json.loads(line))
                job.changed.notify_all()
        with job.changed:
            job.changed.notify_all()

    def follow_errors() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            job.errors.append(line.rstrip())

    job.readers = [threading.Thread(target=follow_output), threading.Thread(target=follow_errors)]
    for reader in job.readers:
        reader.start()
    try:
        yield job
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in job.readers:
            reader.join(30)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def run_job(directory: Path, *arguments: str, alone: bool = False, **settings: str) -> Job:
    """
    Run the reference job to its end.
    """
    with running(directory, *arguments, alone=alone, **settings) as job:
        return job.end()


def eventually(look: Callable[[], T | None], *, deadline: float = SETTLE_DEADLINE, every: float = 0.05) -> T:
    """
    What ``look`` finds, once it finds something within ``deadline`` seconds; it looks again ``every`` so many.
    """
    end = time.monotonic() + deadline
    pause = threading.Event()
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"nothing within {deadline} s"
        pause.wait(every)


def command_of(process: psutil.Process) -> str:
    """
    The command line of ``process``; nothing once it has ended, which it may between two looks.
    """
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
