"""
The reference loop's own actors with markers at their places, and one of the ways to profile them.

Owns where a marker goes and what is timed. Order and work of a step are those of the classes that these derive from.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from stepscope_rollouter.engines.torch import TorchEngine
from stepscope_rollouter.queue import Batch
from stepscope_rollouter.worker import Plan, Rollouter
from stepscope_trainer import model, scope
from stepscope_trainer.batch import MiniBatch
from stepscope_trainer.weights import Publication, WeightChannel
from stepscope_trainer.worker import Row, TrainerRank
from tests.bench.windows import truth, verl
from tests.bench.windows.setting import Setting, Way
from tests.bench.windows.truth import Log

LOGS = "logs"
"""What the processes say that they did, below a run's folder."""

VERL_FILES = "verl"
"""What verl's logic writes, below a run's folder."""


def build_model(setting: Setting) -> nn.Module:
    """
    The job's small model, with as many layers as the comparison wants: real ones have tens, and so many operators.
    """
    config = setting.config
    built: Any = model.build(config.model, seed=config.seed)
    torch.manual_seed(config.seed)
    built.blocks = nn.Sequential(*(model.Block() for _ in range(setting.layers)))
    found: nn.Module = built
    return found


class TimedScope:
    """
    The instrumentation, with its boundary calls timed from outside; the rest is passed through.
    """

    def __init__(self, inner: Any, *, log: Log, arms: bool) -> None:
        """
        Time ``inner``, which may do nothing; ``arms`` if it is what starts the profiler.
        """
        self._inner, self._log, self._arms = inner, log, arms
        self.version = 0
        self.in_force_at = 0.0
        self._entered_at = 0.0

    def __getattr__(self, name: str) -> Any:
        """
        What is not timed.
        """
        return getattr(self._inner, name)

    def init(self, *, param_version: int, **rest: Any) -> None:
        """
        Remember where the run begins.
        """
        self.version = param_version
        self._inner.init(param_version=param_version, **rest)

    @contextmanager
    def step(self) -> Iterator[None]:
        """
        Entering and leaving, each timed. What the block raises passes through the inner one.
        """
        step = self.version + 1
        inner: AbstractContextManager[Any] = self._inner.step()
        begun = self._log.clock()
        if self._entered_at:
            self._log.add(truth.WHOLE, step=step - 1, seconds=begun - self._entered_at)
        self._entered_at = begun
        inner.__enter__()
        if self._arms:
            seconds = self._log.clock() - begun
            self._log.armed(step=step, after=seconds, stall=seconds)
        try:
            yield
        except BaseException as error:
            if not inner.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            with self._log.timed(truth.STALL, step=step):
                inner.__exit__(None, None, None)

    def weights_published(self, version: int) -> None:
        """
        Timed: it ends the step.
        """
        with self._log.timed(truth.STALL, step=version):
            self._inner.weights_published(version)
        self.version = version

    async def aweights_loading(self) -> None:
        """
        Timed: it ends the step.
        """
        with self._log.timed(truth.STALL, step=self.version + 1):
            await self._inner.aweights_loading()

    async def aweights_loaded(self, version: int) -> None:
        """
        Timed: it begins a step.
        """
        self._log.begin(version + 1)
        self.version, self.in_force_at = version, self._log.clock()
        await self._inner.aweights_loaded(version)
        seconds = self._log.clock() - self.in_force_at
        if self._arms:
            self._log.armed(step=version + 1, after=seconds, stall=seconds)


class MarkedTrainer(TrainerRank):
    """
    A trainer rank with a marker at head and tail of a step, on each mini-batch, and on what follows the update.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        rank: int,
        take: Callable[[int], Batch],
        channel: Callable[[], WeightChannel],
        **rest: Any,
    ) -> None:
        """
        Profiled as ``setting`` says; samples end where it says.
        """
        self._setting = setting
        self._log = Log(role="trainer", rank=rank)
        self._timed = TimedScope(scope.load(setting.way.ours), log=self._log, arms=setting.way.ours)
        self._profiler = verl.ProcessProfiler(setting.path / VERL_FILES, role="trainer", rank=rank)
        self._theirs = verl.Trainer(
            self._profiler,
            selected=setting.selected if setting.way is Way.VERL else (),
            mini_batches=setting.mini_batches,
            log=self._log,
        )
        self._theirs.resumed(setting.resume)
        super().__init__(
            setting.config,
            rank=rank,
            model=partial(build_model, setting),
            scope=lambda: cast("Any", self._timed),
            take=lambda step: take(step) if step <= setting.supplied else Batch(closed=True),
            channel=channel,
            **rest,
        )

    def finish(self) -> None:
        """
        Write the log. Called after ``run`` has ended, on the thread that it ran on.
        """
        self._log.write(
            self._setting.path / LOGS,
            left_on=truth.profilers_on(),
            stops_without_start=self._profiler.stops_without_start,
        )

    def _receive(self, scope: Any, row: Row) -> list[MiniBatch]:
        self._log.begin(row.step)
        self._theirs.begin()
        self._log.point(truth.work(row.step, "head"))
        return super()._receive(scope, row)

    def _update(self, scope: Any, share: MiniBatch, log_probs: Tensor, *, step: int, number: int) -> None:
        if number:
            self._theirs.begin()
        with self._log.marked(truth.work(step, f"mini-batch-{number}")):
            super()._update(scope, share, log_probs, step=step, number=number)
        if number < self._setting.mini_batches - 1:
            self._theirs.end(step=step)

    def _publish(self, scope: Any, row: Row) -> Publication | None:
        # verl counts the version up before it sends the weights.
        self._theirs.version = row.step
        with self._log.timed(truth.UPDATE, step=row.step):
            publication = super()._publish(scope, row)
        self._log.point(truth.work(row.step, "tail"))
        return publication

    def _after(self, scope: Any, row: Row, publication: Publication | None) -> None:
        # Where the trainer takes the results of the validation over.
        self._log.point(truth.validation(row.step, "results"))
        with self._log.marked(truth.checkpoint(row.step, "save")):
            super()._after(scope, row, publication)
        self._theirs.end(step=row.step)


class MarkedEngine(TorchEngine):
    """
    The embedded engine with a marker on every token of every request, named by the version in force here.
    """

    def __init__(self, setting: Setting, *, log: Log) -> None:
        """
        Its markers go into ``log``.
        """
        torch.set_num_threads(1)
        super().__init__(build_model(setting), slots=setting.config.slots)
        self._log = log

    async def greedy(self, prompts: Sequence[Sequence[int]], *, limit: int, end: int) -> list[tuple[int, ...]]:
        """
        With a marker before and behind; one across the awaits would end inside another's.
        """
        self._log.point(truth.validation(self._version, "first"))
        answers = await super().greedy(prompts, limit=limit, end=end)
        self._log.point(truth.validation(self._version, "last"))
        return answers

    def _extend(self, work: Any, logits: Tensor) -> None:
        name = f"request-{work.request.number}.token-{len(work.versions)}"
        with self._log.marked(truth.work(self._version + 1, name)):
            super()._extend(work, logits)


class MarkedRollouter(Rollouter):
    """
    A replica with that engine.
    """

    def __init__(self, setting: Setting, plan: Plan, **rest: Any) -> None:
        """
        Profiled as ``setting`` says.
        """
        self._setting = setting
        self._log = Log(role="rollouter", rank=plan.rank)
        self._timed = TimedScope(scope.load(setting.way.ours), log=self._log, arms=setting.way.ours)
        self._profiler = verl.ProcessProfiler(setting.path / VERL_FILES, role="rollouter", rank=plan.rank)
        super().__init__(plan, engine=lambda: MarkedEngine(setting, log=self._log), scope=lambda: self._timed, **rest)

    async def start_verl(self) -> None:
        """
        The remote call of verl's trainer.
        """
        begun, step = self._log.clock(), self._timed.version + 1
        self._profiler.start(meant=step)
        now = self._log.clock()
        self._log.armed(step=step, after=now - self._timed.in_force_at, stall=now - begun)

    async def stop_verl(self) -> None:
        """
        The other one.
        """
        with self._log.timed(truth.STALL, step=self._timed.version + 1):
            self._profiler.stop()

    async def finish(self) -> None:
        """
        Write the log. Called after ``stop``.
        """
        self._log.write(
            self._setting.path / LOGS,
            left_on=truth.profilers_on(),
            stops_without_start=self._profiler.stops_without_start,
        )
