"""
A trainer rank: takes a step's samples, updates in mini-batches, publishes the weights, then checkpoints.

Owns the order of a step. ``run`` is one long call, so that every step is entered and left on one thread. Queue,
replicas, model, task and instrumentation come in from the job.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from stepscope_trainer import batch, checkpoint
from stepscope_trainer.batch import GroupLike, MiniBatch
from stepscope_trainer.config import Config
from stepscope_trainer.learner import Learner
from stepscope_trainer.ranks import Ranks
from stepscope_trainer.scope import Scope
from stepscope_trainer.task import Arithmetic
from stepscope_trainer.weights import Publication, WeightChannel

PROBE_ROWS = 4
"""Rows whose log-probs are compared after every update; enough to notice a load that went wrong."""

MAX_LINKS = 128
"""What an OTel SDK keeps of a span's links by default, also further down the line."""

CLOSE_SECONDS = 5.0
"""Enough to write a recording and flush the spans of a step; the job kills what takes much longer."""


class StoppedError(Exception):
    """
    The job was told to stop.
    """


class WeightsError(RuntimeError):
    """
    A rollouter generates with other weights than were sent.
    """


class BatchLike(Protocol):
    """
    A step's groups.
    """

    @property
    def groups(self) -> Sequence[GroupLike]:
        """
        One per prompt.
        """

    @property
    def dropped(self) -> int:
        """
        Samples dropped as too stale.
        """

    @property
    def closed(self) -> bool:
        """
        There will be no more.
        """


@dataclass(kw_only=True, slots=True)
class Row:
    """
    What one step came to, on one rank. ``param_version`` is the version in force during it, ``partial`` counts samples
    that lived across an update, ``dropped`` those that had become too stale.
    """

    step: int
    param_version: int
    reward: float = 0.0
    staleness: float = 0.0
    seconds: float = 0.0
    trainer_seconds: float = 0.0
    rollouter_seconds: float = 0.0
    wait_seconds: float = 0.0
    samples: int = 0
    dropped: int = 0
    partial: int = 0
    log_prob_gap: float = 0.0
    validation: float | None = None
    checkpoint: str = ""
    replicas: int = 0
    given_up: dict[int, str] = field(default_factory=dict)


class TrainerRank:
    """
    One rank. Rank 0 also sends the weights and saves checkpoints.
    """

    def __init__(
        self,
        config: Config,
        *,
        rank: int,
        model: Callable[[], nn.Module],
        task: Callable[[], Arithmetic],
        scope: Callable[[], Scope],
        take: Callable[[int], BatchLike],
        channel: Callable[[], WeightChannel],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        ``take`` waits for a step's samples.
        """
        self._config = config
        self._rank = rank
        self._task = task()
        self._load_scope = scope
        self._take = take
        self._channel = channel() if rank == 0 else None
        self._clock = clock
        self._ranks = Ranks(rank=rank, world=config.trainer_ranks)
        self._learner = Learner(model(), rate=config.learning_rate, sum_over_ranks=self._ranks.sum)
        self._version = 0
        self._first_gap = 0.0
        self._probe = [
            [*prompt, *answer]
            for prompt, answer in (self._task.demonstration(i, random_share=0.0) for i in range(PROBE_ROWS))
        ]

    def open(self, host: str) -> int:
        """
        On rank 0: the port at which the ranks meet.
        """
        return self._ranks.open(host)

    def setup(self, host: str, port: int) -> int:
        """
        Meet the other ranks and agree on the weights to begin with. Returns their version.
        """
        self._ranks.join(host, port)
        state: dict[str, Any] = {}
        if self._rank == 0 and self._config.resume:
            self._version, path = checkpoint.find(Path(self._config.checkpoints), self._config.resume)
            state = checkpoint.load(path)
            self._learner.restore(state["learner"])
        elif self._rank == 0:
            self._learner.warm_up(self._task, steps=0 if self._config.model else self._config.warmup_steps)
        state = self._ranks.broadcast({"learner": self._learner.state(), "version": self._version})
        self._version = int(state["version"])
        if self._rank:
            self._learner.restore(state["learner"])
        return self._version

    def run(self) -> Iterator[Row]:
        """
        Train up to the last step; a row per step.
        """
        scope = self._load_scope()
        scope.init(
            role="trainer",
            rank=self._rank,
            world_size=self._config.trainer_ranks,
            param_version=self._version,
            resumed_from=self._version if self._config.resume else None,
            total_steps=self._config.steps,
        )
        try:
            self._publish_first()
            for step in range(self._version + 1, self._config.steps + 1):
                row = Row(step=step, param_version=step - 1)
                begun = self._clock()
                with scope.step():
                    publication = self._step(scope, row)
                row.seconds = self._clock() - begun
                self._after(scope, row, publication)
                yield row
        except StoppedError:
            return
        finally:
            scope.shutdown(timeout=CLOSE_SECONDS)
            self._ranks.close()

    def _publish_first(self) -> None:
        """
        The replicas get the weights that the run begins with: no update, so no step waits for it.
        """
        if self._channel is not None:
            self._channel.send(self._version, self._learner.weights(), probe=self._probe, validate=False)
            self._first_gap = self._channel.wait().gap(self._learner.row_log_probs(self._probe))
            self._check(self._first_gap, version=self._version)

    def _step(self, scope: Scope, row: Row) -> Publication | None:
        batches = self._receive(scope, row)
        if row.step == self._config.test_fail_at_step:
            raise RuntimeError(f"--test-fail-at-step {row.step}: told to fail")
        begun = self._clock()
        tokens = sum(share.worked_tokens for share in batches)
        attributes = {"rl.samples": row.samples, "rl.tokens": tokens, "rl.work": float(tokens)}
        with scope.span("train.log_prob", bucket="productive", attributes=attributes):
            old = self._learner.log_probs(batches)
        for number, (share, log_probs) in enumerate(zip(batches, old, strict=True)):
            self._update(scope, share, log_probs, step=row.step, number=number)
        row.trainer_seconds = self._clock() - begun
        publication = self._publish(scope, row)
        scope.weights_published(row.step)
        self._version = row.step
        return publication

    def _receive(self, scope: Scope, row: Row) -> list[MiniBatch]:
        begun = self._clock()
        with scope.span("train.wait_samples", bucket="idle", wait_for="samples") as span:
            taken = self._take(row.step)
            if taken.closed:
                raise StoppedError
            span.set("rl.samples", sum(len(group.samples) for group in taken.groups))
            span.set("rl.samples.dropped", taken.dropped)
        row.wait_seconds = self._clock() - begun
        row.partial = sum(
            min(sample.versions) < max(sample.versions) for group in taken.groups for sample in group.samples
        )
        rewards = [sample.reward for group in taken.groups for sample in group.samples]
        ages = [self._version - min(sample.versions) for group in taken.groups for sample in group.samples]
        row.samples, row.dropped = len(rewards), taken.dropped
        row.reward, row.staleness = sum(rewards) / len(rewards), sum(ages) / len(ages)
        return batch.share(
            taken.groups,
            mini_batches=self._config.mini_batches_per_step,
            rank=self._rank,
            world=self._config.trainer_ranks,
            version=self._version,
        )

    def _update(self, scope: Scope, share: MiniBatch, log_probs: Tensor, *, step: int, number: int) -> None:
        attributes = {
            "rl.global_step": (step - 1) * self._config.mini_batches_per_step + number + 1,
            "rl.mini_batch": number,
            "rl.samples": share.samples,
            "rl.tokens": share.worked_tokens,
            "rl.work": float(share.worked_tokens),
            "rl.reward": share.reward,
            "rl.staleness": share.staleness,
        }
        links = [scope.link(group.carrier) for group in share.groups[:MAX_LINKS]]
        with scope.span("train.update_actor", bucket="productive", attributes=attributes, links=links):
            self._learner.update(share, old=log_probs)
        scope.consumed(
            mini_batch=number,
            rows=[
                (sample.id, min(sample.versions), max(sample.versions), group.carrier)
                for group in share.groups
                for sample in group.samples
            ],
        )

    def _publish(self, scope: Scope, row: Row) -> Publication | None:
        """
        Rank 0 sends the weights; every rank waits until the live replicas have them in force.
        """
        publication = None
        if self._channel is not None:
            with scope.span("weights.publish", bucket="overhead"):
                validate = self._config.due(self._config.validate_every, row.step)
                self._channel.send(row.step, self._learner.weights(), probe=self._probe, validate=validate)
                expected = self._learner.row_log_probs(self._probe)
        with scope.span("weights.wait", bucket="idle", wait_for="acknowledgement"):
            if self._channel is not None:
                publication = self._channel.wait()
                # The first row also answers for the initial load, or for that of a resume.
                row.log_prob_gap = max(publication.gap(expected), self._first_gap)
                self._first_gap = 0.0
                self._check(row.log_prob_gap, version=row.step)
            self._ranks.barrier()
        return publication

    def _check(self, gap: float, *, version: int) -> None:
        tolerance = self._config.log_prob_tolerance
        # Not less or equal: what is no number is no agreement either.
        if tolerance and not gap <= tolerance:
            raise WeightsError(
                f"after the load of version {version} a rollouter's log-probs differ from the trainer's by {gap:.3g}, "
                f"more than --log-prob-tolerance {tolerance:g}: it did not take the weights in as they are"
            )

    def _after(self, scope: Scope, row: Row, publication: Publication | None) -> None:
        """
        What follows an update and belongs to the next step: validation results, and the checkpoint.
        """
        if publication is None:
            return
        row.rollouter_seconds = publication.busy_seconds
        row.replicas, row.given_up = len(publication.acknowledged), publication.given_up
        row.validation = publication.validation
        if self._config.due(self._config.checkpoint_every, row.step):
            with scope.span("checkpoint.save", bucket="overhead", after_version=row.step):
                state: Mapping[str, Any] = {"learner": self._learner.state(), "version": row.step}
                row.checkpoint = str(checkpoint.save(Path(self._config.checkpoints), dict(state), version=row.step))
