"""
fully_async: the trainer's actor, whose ``fit_step()`` is one mini-batch. Role ``trainer``, rank 0.

Owns that a step lasts from one update to the next, however many mini-batches that are. The class is a Ray actor: its
wrappers travel with it by value, so they refer to modules and functions alone; an object would arrive as a copy.
"""

import functools
from typing import Any

from stepscope import names, sdk
from stepscope.complaints import complaints
from stepscope.integrations.verl import loop, samples, validation
from stepscope.integrations.verl.minibatch import Row
from stepscope.integrations.verl.phases import Function, phase
from stepscope.integrations.verl.trainer import ROLE
from stepscope.names import Bucket

NO_MORE_DATA = "TrainingStopException"
"""verl's own way to end its loop: no failure."""


def resumed(original: Function) -> Function:
    """
    ``load_checkpoint()``: from here on the version is known, and the first weights have not been published yet.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = await original(self, *args, **kwargs)
        _enrol(self)
        return result

    return wrapper


def fit(original: Function) -> Function:
    """
    ``fit()``: however it ends, nothing stays open.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        _enrol(self)
        try:
            result = await original(self, *args, **kwargs)
        except BaseException as error:
            await loop.process.aleave(error)
            raise
        else:
            await loop.process.aleave()
            return result
        finally:
            # Ray may end the process without a word after this.
            await sdk.ashutdown()

    return wrapper


def fit_step(original: Function) -> Function:
    """
    ``fit_step()``: the first mini-batch of a step enters it. What ends this one early ends the step.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        validation.ahead.over()
        await loop.process.aenter()
        try:
            return await original(self, *args, **kwargs)
        except BaseException as error:
            await loop.process.aleave(None if type(error).__name__ == NO_MORE_DATA else error)
            raise

    return wrapper


def updates_weights(original: Function) -> Function:
    """
    ``_fit_update_weights()``: something else than None says that an update was made, also where no manager was asked.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        samples.known.rollouter = getattr(self, "rollouter", None)
        result = await original(self, *args, **kwargs)
        if result is not None:
            await loop.process.apublished(_version(self))
        return result

    return wrapper


def validates(original: Function) -> Function:
    """
    ``_fit_validate(val_before_train)``, which is called after every mini-batch and mostly returns at once.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, val_before_train: bool = False, *args: Any, **kwargs: Any) -> Any:
        if not _is_due(self, val_before_train):
            return await original(self, val_before_train, *args, **kwargs)
        try:
            with phase(names.VALIDATE, bucket=Bucket.OVERHEAD, after_version=_version(self)):
                return await original(self, val_before_train, *args, **kwargs)
        finally:
            validation.ahead.over()

    return wrapper


def saves(original: Function) -> Function:
    """
    ``_save_checkpoint()``: after the update whose weights it holds, unless the run is over before that.
    """

    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        loop.process.cut()
        with phase(names.CHECKPOINT_SAVE, bucket=Bucket.OVERHEAD, after_version=_version(self)):
            return original(self, *args, **kwargs)

    return wrapper


def told(batch: Any) -> tuple[list[Row], int]:
    """
    The samples of a ``DataProto``, none where verl noted no versions, and their tokens.
    """
    known = batch.non_tensor_batch
    rows: list[Row] = []
    if "min_global_steps" in known and "max_global_steps" in known:
        # The trajectories of a prompt share its uid.
        keys = [f"{key}_{at}" for at, key in enumerate(known.get("uid", range(len(known["min_global_steps"]))))]
        carriers = [samples.carried(extra) for extra in known.get("extras", [None] * len(keys))]
        rows = list(zip(keys, known["min_global_steps"], known["max_global_steps"], carriers, strict=True))
    return rows, sum(map(int, batch.meta_info.get("global_token_num", ())))


def _is_due(trainer: Any, first: bool) -> bool:
    try:
        version = trainer.current_param_version
        return bool(trainer.local_trigger_step == 1 and (first or _validates_after(trainer, -1, version)))
    except Exception as error:  # noqa: BLE001 - verl's attributes are not ours; validation goes without a span
        complaints.fault("whether validation is due", error)
        return False


def _validates_after(trainer: Any, first: int, version: int) -> bool:
    """
    Whether verl validates after ``version``; ``first`` is the one that the run began with.
    """
    chosen = trainer.config.trainer
    if version == first:
        return bool(chosen.get("val_before_train", True))
    return bool(chosen.test_freq > 0 and version > 0 and version % chosen.test_freq == 0)


def _enrol(trainer: Any) -> None:
    version = _version(trainer)
    if version is not None:
        validation.ahead.expect(functools.partial(_validates_after, trainer, version))
        total = getattr(trainer, "total_train_steps", None)
        loop.enrol(role=ROLE, rank=0, world_size=1, version=version, total=total, resumed=True)


def _version(trainer: Any) -> int | None:
    version = getattr(trainer, "current_param_version", None)
    return version if isinstance(version, int) else None
