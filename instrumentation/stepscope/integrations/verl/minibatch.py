"""
What a mini-batch consumed: the span around the actor's update, its links, and the rows of the sample table.

Owns how both of verl's trainers tell of it. What their batches look like is each trainer's own.
"""

import functools
from collections.abc import Callable
from typing import Any

from stepscope import names, sdk
from stepscope.complaints import complaints
from stepscope.integrations.verl.phases import Function, Wrap, mini_batch, phase, whole
from stepscope.names import Bucket
from stepscope.propagation import Carrier

Row = tuple[object, object, object, Carrier | None]
"""A sample, the oldest and the newest version that it was generated under, and the carrier of its span."""

Consumed = tuple[str, int | None, int | None, Carrier | None]
"""The same, as the sample table takes it."""

Told = Callable[[Any], tuple[list[Row], int]]
"""What a batch of verl's says: the samples of it, and how many tokens they are together, 0 where it does not say."""


def updates_actor(told: Told) -> Wrap:
    """
    Wraps ``_update_actor(batch)``: which samples the mini-batch consumed, and how much work they were.
    """

    def wrap(original: Function) -> Function:
        @functools.wraps(original)
        def wrapper(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
            attributes: dict[str, Any] = dict(mini_batch(self))
            rows: list[Consumed] = []
            try:
                found, tokens = told(batch)
                if found:
                    attributes[str(names.SAMPLES)] = len(found)
                if tokens:
                    attributes[str(names.TOKENS)] = tokens
                    attributes[str(names.WORK)] = float(tokens)
                rows = [(str(key), whole(oldest), whole(newest), carrier) for key, oldest, newest, carrier in found]
            except Exception as error:  # noqa: BLE001 - a batch of another shape must not stop training
                complaints.fault("the samples of a mini-batch", error)
            carriers = [carrier for *_, carrier in rows]
            with phase(names.TRAIN_UPDATE_ACTOR, bucket=Bucket.PRODUCTIVE, attributes=attributes, carriers=carriers):
                result = original(self, batch, *args, **kwargs)
            sdk.consumed(mini_batch=attributes.get(str(names.MINI_BATCH), 0), rows=rows)
            return result

        return wrapper

    return wrap
