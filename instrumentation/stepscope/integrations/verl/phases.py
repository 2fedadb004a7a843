"""
Spans around what verl does: the wrapper that most rows of the table use, and what such a span says.

Owns that a method which calls the one that it overrides is one span, not two. verl's numbers are read, never written.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

from stepscope import interrupts, names, sdk
from stepscope.complaints import complaints
from stepscope.names import Bucket
from stepscope.propagation import Carrier

Function = Callable[..., Any]
Wrap = Callable[[Function], Function]
MAX_LINKS = 128
"""What an OTel SDK keeps of a span's links by default, also further down the line."""

_open: ContextVar[tuple[str, ...]] = ContextVar("stepscope_verl_phases", default=())


@contextmanager
def phase(
    name: str,
    *,
    bucket: str,
    wait_for: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    after_version: int | None = None,
    carriers: Iterable[Carrier | None] = (),
) -> Iterator[Any]:
    """
    A span ``name``, unless one is open already in this context: then nothing. It links to the first of ``carriers``.
    """
    inside = _open.get()
    if name in inside:
        yield None
        return
    token = _open.set((*inside, name))
    try:
        with sdk.span(
            name,
            bucket=bucket,
            wait_for=wait_for,
            attributes=attributes,
            after_version=after_version,
            links=[sdk.link(carrier) for carrier in islice(carriers, MAX_LINKS)],
        ) as span:
            yield span
    finally:
        _open.reset(token)


def timed(name: str, *, bucket: str = Bucket.PRODUCTIVE, wait_for: str | None = None) -> Wrap:
    """
    Wraps a method of a trainer in a span that says which mini-batch it worked on.
    """

    def wrap(original: Function) -> Function:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def awaited(self: Any, *args: Any, **kwargs: Any) -> Any:
                with phase(name, bucket=bucket, wait_for=wait_for, attributes=mini_batch(self)):
                    return await original(self, *args, **kwargs)

            return awaited

        @functools.wraps(original)
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            with phase(name, bucket=bucket, wait_for=wait_for, attributes=mini_batch(self)):
                return original(self, *args, **kwargs)

        return called

    return wrap


def mini_batch(trainer: Any) -> dict[str, int]:
    """
    The mini-batch that ``trainer`` works on: its number within the step from 0, and since the run began from 1.

    Nothing where it has none, as a worker.
    """
    try:
        if (per_step := getattr(trainer, "parameter_sync_step", None)) is not None:
            # V1: global_steps counts steps, and a step's mini-batches are counted from 0.
            number = int(trainer.local_trigger_step)
            return _numbers(number, (int(trainer.global_steps) - 1) * int(per_step) + number + 1)
        if hasattr(trainer, "trigger_parameter_sync_step"):
            # fully_async: global_steps counts mini-batches, and those of a step are counted from 1.
            return _numbers(int(trainer.local_trigger_step) - 1, int(trainer.global_steps))
    except Exception as error:  # noqa: BLE001 - verl's attributes are not ours; the span goes without
        complaints.fault("the number of a mini-batch", error)
    return {}


def whole(value: object) -> int | None:
    """
    ``value`` as a version, None where it is none: verl says -1 or nothing for what it does not know.
    """
    try:
        number = int(value)  # type: ignore[call-overload]  # whatever it is: numpy's and torch's numbers too
    except Exception as error:  # infinity, a tensor of several or of no data: each has an error of its own
        if interrupts.theirs(error):
            raise
        return None
    return number if number >= 0 else None


def _numbers(number: int, total: int) -> dict[str, int]:
    return {str(names.MINI_BATCH): number, str(names.GLOBAL_STEP): total}
