"""
How verl 0.9.1 profiles its fully-asynchronous mode: the logic rebuilt in words of our own, for this loop.

Rebuilt from notes on its behaviour; nothing of it is imported or copied. The trainer's profiler is started and stopped
around each mini-batch of a selected step: before the wait for samples, and after update, validation and checkpoint. The
rollouters' is started and stopped by remote calls of the trainer, around the update. Nothing is in a ``finally``. Files
are gzipped in the process; the trainer's are named by the counter of mini-batches, the rollouters' by time alone.

Where this loop differs from verl's, it is in verl's favour: here a replica validates inside its update, between stop
and start, so that no validation is in a rollouter's file.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch.profiler

from stepscope_trainer.weights import Publication, Rows, WeightChannel
from tests.bench.windows import truth
from tests.bench.windows.truth import Log

ABOUT = ".about.json"
"""Beside each file: the step that it was meant for, for the comparison alone. verl writes no such thing."""


class ProcessProfiler:
    """
    The one profiler of a process. Starting it twice is once; stopping what was not started does nothing but count.
    """

    def __init__(self, folder: Path, *, role: str, rank: int) -> None:
        """
        Writes into ``folder``.
        """
        self._folder, self._role, self._rank = folder, role, rank
        self._profile: Any = None
        self._meant = 0
        self.stops_without_start = 0

    def start(self, *, meant: int) -> None:
        """
        From now on. ``meant`` is the step that is to be recorded, which only the comparison is told.
        """
        if self._profile is not None:
            return
        self._meant = meant
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        self._profile.start()

    def stop(self, *, name: str = "") -> None:
        """
        Until now; export and compression are done before this returns.
        """
        if self._profile is None:
            self.stops_without_start += 1
            return
        profile, self._profile = self._profile, None
        profile.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        named = f"{name}_" if name else ""
        path = self._folder / f"{self._role}_{named}rank{self._rank}_pid{os.getpid()}_{time.time_ns()}.json.gz"
        profile.export_chrome_trace(str(path))
        about = {"role": self._role, "rank": self._rank, "meant": self._meant}
        path.with_name(path.name + ABOUT).write_text(json.dumps(about))


class Trainer:
    """
    What verl's trainer keeps: its version, and the counter of mini-batches that files are named by.
    """

    def __init__(self, profiler: ProcessProfiler, *, selected: Sequence[int], mini_batches: int, log: Log) -> None:
        """
        Stop and start as verl does for the steps ``selected``.
        """
        self._profiler, self._selected, self._mini_batches = profiler, selected, mini_batches
        self._log = log
        self._on = False
        self._counter = 0
        self.version = 0

    def resumed(self, version: int) -> None:
        """
        The run goes on after ``version``.
        """
        self.version, self._counter = version, version * self._mini_batches

    def begin(self) -> None:
        """
        A mini-batch begins, with the wait for its samples.
        """
        self._counter += 1
        self._on = self.version + 1 in self._selected
        if self._on:
            begun = self._log.clock()
            self._profiler.start(meant=self.version + 1)
            seconds = self._log.clock() - begun
            self._log.armed(step=self.version + 1, after=seconds, stall=seconds)

    def end(self, *, step: int) -> None:
        """
        A mini-batch of ``step`` has ended, with all that came after its update.
        """
        if self._on:
            with self._log.timed(truth.STALL, step=step):
                self._profiler.stop(name=f"step{self._counter}")


class Call(Protocol):
    """
    A remote call to every replica; returns when all have answered.
    """

    def __call__(self) -> object:
        """
        Call and wait.
        """


class Channel(WeightChannel):
    """
    The weight channel with the rollouters' profilers around it, on the training thread.
    """

    def __init__(
        self,
        replicas: dict[int, Callable[..., Any]],
        *,
        selected: Sequence[int],
        start: Call,
        stop: Call,
        **rest: Any,
    ) -> None:
        """
        ``start`` and ``stop`` the profilers of all replicas for the steps ``selected``.
        """
        super().__init__(replicas, **rest)
        self._selected, self._start, self._stop = selected, start, stop

    def send(self, version: int, weights: Any, *, probe: Rows, validate: bool) -> None:
        """
        Before the weights go out, the step that they end is no longer recorded.
        """
        if version in self._selected:
            self._stop()
        super().send(version, weights, probe=probe, validate=validate)

    def wait(self) -> Publication:
        """
        Once they are in force, the step that begins is.
        """
        publication = super().wait()
        if publication.version + 1 in self._selected:
            self._start()
        return publication
