"""
The reference job: wires trainer and rollouters on Ray, follows them, and ends them in order.

The only module that imports both packages. Read it first: ``Job`` says what is built from what, ``run`` how it goes.
"""

import contextlib
import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from stepscope_rollouter.calls import QueueCalls, ReplicaCalls
from stepscope_rollouter.engines import Engine
from stepscope_rollouter.queue import SampleQueue
from stepscope_rollouter.replicas import EngineManager
from stepscope_rollouter.worker import Plan, Rollouter
from stepscope_trainer import checkpoint, cluster, model, scope
from stepscope_trainer.config import Config, JobError, add_arguments, from_arguments
from stepscope_trainer.signals import Interrupted, Signals
from stepscope_trainer.task import Arithmetic
from stepscope_trainer.weights import NoReplicasError, WeightChannel
from stepscope_trainer.worker import Row, TrainerRank

LAST_ROW_SECONDS = 1.0
"""Seconds for a row that rank 0 tells of just as another rank fails in the next step."""

CLOSE_SECONDS = 15.0
"""Trainers end their update, everyone writes an open recording and flushes; then what is left is killed."""

POLL_SECONDS = 0.5
"""How soon the driver notices a signal while nothing happens."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_SIGNAL = 128
"""What a shell adds to the number of the signal that ended a program."""


@dataclass(kw_only=True, slots=True)
class Result:
    """
    What a run came to: rank 0's row of each step, and the replicas that were given up.
    """

    version: int = 0
    rows: list[Row] = field(default_factory=list)
    given_up: dict[int, str] = field(default_factory=dict)


def build_engine(config: Config) -> Engine:
    """
    A replica's engine; runs in its process.
    """
    if config.engine == "vllm":
        from stepscope_rollouter.engines.vllm import VllmEngine
        from stepscope_trainer.hugging_face import checkpoint_name

        return VllmEngine(config.model, rename=checkpoint_name)
    import torch

    from stepscope_rollouter.engines.torch import TorchEngine

    torch.set_num_threads(1)
    return TorchEngine(model.build(config.model, seed=config.seed), slots=config.slots)


def build_profiler(config: Config, engine: Engine) -> object | None:
    """
    The profiler of a started engine, where it has one of its own; runs in its process.
    """
    if config.engine != "vllm" or not config.stepscope:
        return None
    from stepscope.profilers.vllm import VllmProfiler
    from stepscope_rollouter.engines.vllm import VllmEngine

    return VllmProfiler(engine.llm) if isinstance(engine, VllmEngine) else None


def build_task(config: Config) -> Arithmetic:
    """
    The task, the same one in every process.
    """
    return Arithmetic(model.codec(config.model), seed=config.seed)


def build_channel(config: Config, *, replicas: Sequence[Any], queue: Any) -> WeightChannel:
    """
    The weight channel of rank 0.
    """
    import ray

    return WeightChannel(
        {rank: actor.update.remote for rank, actor in enumerate(replicas)},
        transport=ray,
        deadline=config.ack_deadline,
        give_up=lambda replica: queue.forget.remote(replica),
    )


def take(queue: Any, step: int) -> Any:
    """
    Wait for the samples of ``step``.
    """
    import ray

    return ray.get(queue.take.remote(step))


class Job:
    """
    The actors of one run.
    """

    def __init__(self, config: Config, *, version: int, signals: Signals) -> None:
        """
        Start them; they go on after ``version``, until one of ``signals`` comes.
        """
        import ray

        self._ray: Any = ray
        self._config = config
        self._version = version
        self._signals = signals
        self.result = Result(version=version)
        options = {"num_cpus": 0, "runtime_env": {"env_vars": cluster.actor_environment(os.environ)}}
        self._queue: Any = (
            ray.remote(SampleQueue)
            .options(**options)
            .remote(
                per_step=config.prompts,
                steps=config.steps,
                capacity=config.queue_capacity,
                staleness=config.allowed_staleness,
                version=version,
            )
        )
        load_scope = partial(scope.load, config.stepscope)
        self._replicas: list[Any] = [
            ray.remote(Rollouter)
            .options(**options)
            .remote(
                self._plan(rank),
                engine=partial(build_engine, config),
                profiler=partial(build_profiler, config),
                task=partial(build_task, config),
                queue=QueueCalls(self._queue),
                scope=load_scope,
            )
            for rank in range(config.replicas)
        ]
        self._trainers: list[Any] = [
            ray.remote(TrainerRank)
            .options(**options)
            .remote(
                config,
                rank=rank,
                model=partial(model.build, config.model, seed=config.seed),
                task=partial(build_task, config),
                scope=load_scope,
                take=partial(take, self._queue),
                channel=partial(build_channel, config, replicas=self._replicas, queue=self._queue),
            )
            for rank in range(config.trainer_ranks)
        ]
        self._runs: list[Any] = []
        self._checks: dict[Any, int] = {}
        self.manager = EngineManager({rank: ReplicaCalls(actor) for rank, actor in enumerate(self._replicas)})

    def _plan(self, rank: int) -> Plan:
        config = self._config
        return Plan(
            rank=rank,
            world=config.replicas,
            total_steps=config.steps,
            resumed_from=self._version if config.resume else None,
            in_hand=config.requests_per_replica,
            slots=config.slots,
            lockstep=config.sync,
            samples=config.samples,
            staleness=config.allowed_staleness,
            seed=config.seed,
            deaf=rank == config.test_deaf_replica,
        )

    def follow(self, on_row: Callable[[Row], None] | None) -> None:
        """
        Run to the end, passing each row of rank 0 on as it comes.
        """
        ray = self._ray
        host = ray.util.get_node_ip_address()
        started = [replica.start.remote(version=self._version) for replica in self._replicas]
        port = self._get(self._trainers[0].open.remote(host))
        self._get([*started, *(trainer.setup.remote(host, port) for trainer in self._trainers)])
        self._checks = {replica.check.remote(): rank for rank, replica in enumerate(self._replicas)}
        self._runs = [trainer.run.options(num_returns="streaming").remote() for trainer in self._trainers]
        left = list(self._runs)
        while left:
            self._signals.check()
            ready, _ = ray.wait([*left, *self._checks], num_returns=1, timeout=POLL_SECONDS)
            for found in ready:
                if found in self._checks:
                    self._heard_of(found)
                    continue
                try:
                    row: Row = ray.get(next(found))
                except StopIteration:
                    left.remove(found)
                    continue
                except Exception:
                    if found is not self._runs[0]:
                        self._take_last_row(on_row)
                    raise
                if found is self._runs[0]:
                    self._take_row(row, on_row)

    def _take_row(self, row: Row, on_row: Callable[[Row], None] | None) -> None:
        self.result.version = row.step
        self.result.rows.append(row)
        self.result.given_up.update(row.given_up)
        if on_row is not None:
            on_row(row)

    def _take_last_row(self, on_row: Callable[[Row], None] | None) -> None:
        """
        Another rank has failed, in the step after one that rank 0 may just be telling of.
        """
        ray = self._ray
        if ray.wait([self._runs[0]], num_returns=1, timeout=LAST_ROW_SECONDS)[0]:
            with contextlib.suppress(Exception):
                self._take_row(ray.get(next(self._runs[0])), on_row)

    def close(self) -> None:
        """
        End everybody in order: trainers after the update they are in, then replicas; what does not end is killed.
        """
        ray = self._ray
        self._queue.close.remote()
        if self._runs:
            ends = [run.completed() for run in self._runs]
            ray.wait(ends, num_returns=len(ends), timeout=CLOSE_SECONDS)
        stops = [replica.stop.remote() for replica in self._replicas]
        ray.wait(stops, num_returns=len(stops), timeout=CLOSE_SECONDS)
        for actor in [*self._trainers, *self._replicas, self._queue]:
            ray.kill(actor)

    def _get(self, refs: Any) -> Any:
        """
        The answers, in slices, so that a signal is noticed meanwhile.
        """
        while True:
            self._signals.check()
            try:
                return self._ray.get(refs, timeout=POLL_SECONDS)
            except self._ray.exceptions.GetTimeoutError:
                continue

    def _heard_of(self, check: Any) -> None:
        """
        A replica has no more to generate, or it was lost; an error in its own code ends the job.
        """
        rank = self._checks.pop(check)
        try:
            self._ray.get(check)
        except self._ray.exceptions.RayActorError as error:
            self.result.given_up[rank] = f"lost: {type(error).__name__}"
            self._queue.forget.remote(rank)
            if len(self.result.given_up) == self._config.replicas:
                raise NoReplicasError(f"no rollouter is left: {self.result.given_up}") from error


def run(
    config: Config,
    *,
    on_row: Callable[[Row], None] | None = None,
    on_ready: Callable[[EngineManager], None] | None = None,
) -> Result:
    """
    Run the job to its end. ``on_row`` is called with each step's row, ``on_ready`` once with the engine manager.

    Raises:
        ValueError: it cannot start as configured.
        Interrupted: SIGINT or SIGTERM; everything has been closed in order.
    """
    config, version = _resumed(config)
    model.codec(config.model)
    _check_engine(config)
    ours = scope.load(config.stepscope)
    ours.init(role="driver", register_only=True)
    signals = Signals()
    try:
        with cluster.started():
            # Ray has put a handler of its own for SIGTERM there, which would leave at once.
            signals.install()
            job = Job(config, version=version, signals=signals)
            try:
                if on_ready is not None:
                    on_ready(job.manager)
                job.follow(on_row)
            finally:
                job.close()
            return job.result
    finally:
        signals.restore()
        ours.shutdown()


def _resumed(config: Config) -> tuple[Config, int]:
    # Actors may work in another folder.
    config = replace(config, checkpoints=str(Path(config.checkpoints).absolute()) if config.checkpoints else "")
    if not config.resume:
        return config, 0
    version, _ = checkpoint.find(Path(config.checkpoints), config.resume)
    if version >= config.steps:
        raise JobError(f"--resume {config.resume}: version {version} has all of the --steps {config.steps}")
    return replace(config, resume=str(version)), version


def _check_engine(config: Config) -> None:
    if config.engine == "vllm":
        from stepscope_rollouter.engines.vllm import unusable

        if why := unusable(config.model):
            raise JobError(f"--engine vllm: {why}")


def line(row: Row) -> str:
    """
    ``row`` for a person.
    """
    parts = [
        f"step {row.step:3d} (weights v{row.param_version} in force, makes v{row.step})",
        f"reward {row.reward:.3f}",
        f"trainer {row.trainer_seconds:.2f} s",
        f"rollouter {row.rollouter_seconds:.2f} s",
        f"staleness {row.staleness:.2f}",
    ]
    if row.validation is not None:
        parts.append(f"validation {row.validation:.2f}")
    return "  ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """
    The command line of the job. Returns the exit code.
    """
    parser = ArgumentParser(prog="python -m stepscope_trainer.job", description=(__doc__ or "").strip().splitlines()[0])
    add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per step, then a summary")
    chosen = parser.parse_args(arguments)

    def show(row: Row) -> None:
        sys.stdout.write((json.dumps(asdict(row)) if chosen.json else line(row)) + "\n")
        sys.stdout.flush()

    try:
        result = run(from_arguments(chosen), on_row=show)
    except Interrupted as stop:
        sys.stderr.write(f"stopped by signal {stop.signal}\n")
        return EXIT_SIGNAL + stop.signal
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_USAGE
    except Exception as error:  # noqa: BLE001 - an actor's exception, already with the actor's own stack in its text
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED
    if chosen.json:
        summary = {"version": result.version, "steps": len(result.rows), "given_up": result.given_up}
        sys.stdout.write(json.dumps({"summary": summary}) + "\n")
    return 0


if __name__ == "__main__":
    # Under the name __main__ the actors could not import what is defined here.
    from stepscope_trainer.job import main as imported_main

    sys.exit(imported_main())
