"""
V1: the one process that drives the workers through ``PPOTrainer.fit()``. Role ``trainer``, rank 0.

Owns where in verl's loop the step begins and what lies outside its window. A step's checkpoint is saved before its
update; the window ends before it. The update itself is in :mod:`stepscope.integrations.verl.sync`.
"""

import functools
from typing import Any

from stepscope import names, registration
from stepscope.integrations.verl import loop, profiling, samples, validation
from stepscope.integrations.verl.minibatch import Row
from stepscope.integrations.verl.phases import Function, phase
from stepscope.names import Bucket

ROLE = "trainer"
TRAINING = "train"
"""The partition of the replay buffer that is trained on; another is validation's."""


def constructed(original: Function) -> Function:
    """
    ``__init__(config, …)``, where the driver had started Ray itself: the selection, if verl's setting says it.
    """

    @functools.wraps(original)
    def wrapper(self: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        if profiling.adopt(config):
            # Before the workers come: the first to register says what is selected.
            registration.init(role=ROLE, register_only=True)
        return original(self, config, *args, **kwargs)

    return wrapper


def resumed(original: Function) -> Function:
    """
    ``_load_checkpoint()``: from here on the version is known, and the first weights have not been published yet.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _enrol(self)
        return result

    return wrapper


def fit(original: Function) -> Function:
    """
    ``fit()``: however it ends, nothing stays open.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        _enrol(self)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            loop.process.leave(error)
            raise
        else:
            loop.process.leave()
            return result
        finally:
            # Ray may end the process without a word after this.
            registration.shutdown()

    return wrapper


def begins(original: Function) -> Function:
    """
    A method that verl calls as the first of a step. There are several: a trainer of a user's may override any.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        validation.ahead.over()
        loop.process.enter()
        return original(self, *args, **kwargs)

    return wrapper


def waits(original: Function) -> Function:
    """
    ``sample(global_steps, partition_id, batch_size)`` of a replay buffer, and what it waits with.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        partition = kwargs.get("partition_id", args[1] if len(args) > 1 else TRAINING)
        if partition != TRAINING:
            return original(self, *args, **kwargs)
        with phase(names.TRAIN_WAIT_SAMPLES, bucket=Bucket.IDLE, wait_for="samples"):
            return original(self, *args, **kwargs)

    return wrapper


def validates(original: Function) -> Function:
    """
    ``_validate()``: between two steps, with the weights that the later of them has.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with phase(names.VALIDATE, bucket=Bucket.OVERHEAD, after_version=_steps(self)):
                return original(self, *args, **kwargs)
        finally:
            validation.ahead.over()

    return wrapper


def saves(original: Function) -> Function:
    """
    ``_save_checkpoint()``: of the weights that the step's update will publish.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        loop.process.cut()
        with phase(names.CHECKPOINT_SAVE, bucket=Bucket.OVERHEAD, after_version=_steps(self)):
            return original(self, *args, **kwargs)

    return wrapper


def told(batch: Any) -> tuple[list[Row], int]:
    """
    The samples of a ``KVBatchMeta`` without its padding, and their tokens.
    """
    real = [(key, tag) for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
    return [_row(key, tag) for key, tag in real], sum(int(tag.get("seq_len", 0)) for _, tag in real)


def _row(key: Any, tag: Any) -> Row:
    """
    What ``tag`` says of the trajectory ``key``: ``uid_session_number``, where a session's outputs are one sample.
    """
    sample = str(key).rpartition("_")[0]
    carrier = samples.carrier(sample, tag.get("global_steps"))
    return key, tag.get("min_global_steps"), tag.get("max_global_steps"), carrier


def _enrol(trainer: Any) -> None:
    version = _steps(trainer)
    if version is not None:
        validation.ahead.expect(functools.partial(_is_due, trainer, version))
        total = getattr(trainer, "total_training_steps", None)
        loop.enrol(role=ROLE, rank=0, world_size=1, version=version, total=total, resumed=True)


def _is_due(trainer: Any, first: int, version: int) -> bool:
    """
    Whether ``fit()`` validates after ``version``; ``first`` is the one that the run began with.
    """
    chosen = trainer.config.trainer
    if version == first:
        return bool(chosen.get("val_before_train", True))
    return bool(chosen.test_freq > 0 and (version >= trainer.total_training_steps or version % chosen.test_freq == 0))


def _steps(trainer: Any) -> int | None:
    steps = getattr(trainer, "global_steps", None)
    return steps if isinstance(steps, int) else None
