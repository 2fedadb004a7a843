"""
Puts a wrapper in the place of a function of verl's, and remembers what was found and what was not.

Owns how a place is found in a module, also in a Ray actor class, and that a place is wrapped once. Which places, and
by what, is the table's: :mod:`stepscope.integrations.verl.targets`.
"""

import inspect
import logging
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any, Protocol

from stepscope.complaints import complaints

MARK = "__stepscope_wrapped__"
"""An attribute of every wrapper, so that a place is wrapped once."""

logger = logging.getLogger("stepscope.verl")


class Place(Protocol):
    """
    What is wrapped, and by what: a row of the table.
    """

    @property
    def module(self) -> str:
        """
        The module it is in.
        """

    @property
    def where(self) -> str:
        """
        ``Class.method``, or ``function``.
        """

    @property
    def wrap(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """
        Makes the wrapper of the original.
        """

    @property
    def needs(self) -> tuple[str, ...]:
        """
        Parameters that the wrapper reads by name.
        """

    @property
    def override(self) -> bool:
        """
        Whether it may be missing without loss.
        """


found: dict[str, str] = {}
"""Places that were looked for in this process, as ``module:where``: "" where wrapped, else why not."""


def instrument(module: ModuleType, places: Sequence[Place]) -> None:
    """
    Wrap ``places`` of ``module``. A newer verl that lacks one costs that one.
    """
    for place in places:
        key = f"{place.module}:{place.where}"
        try:
            why = _wrap(module, place)
            if not (why and place.override):
                found[key] = why
        except Exception as error:  # noqa: BLE001 - one place that is not as expected must not cost the others
            complaints.fault(f"wrapping {key}", error)
            found[key] = f"{type(error).__name__}: {error}"


def missing() -> dict[str, str]:
    """
    The places that could not be wrapped, with the reason.
    """
    return {key: why for key, why in found.items() if why}


def say(version: str) -> None:
    """
    One line on what was instrumented in this process, and what was not found.
    """
    lacking = missing()
    count = len(found) - len(lacking)
    if lacking:
        listed = "; ".join(f"{key} ({why})" for key, why in sorted(lacking.items()))
        logger.warning("verl %s: instrumented %d places of this process; not found: %s", version, count, listed)
        return
    if logger.level == logging.NOTSET:
        # As verl does with its own loggers: its root logger stands at WARNING.
        logger.setLevel(logging.INFO)
    logger.info("verl %s: instrumented %d places of this process; nothing was missing", version, count)


def owner_of(holder: object) -> object:
    """
    Where the methods of ``holder`` are taken from: for a Ray actor class the class that Ray sends to the actor.
    """
    metadata = getattr(holder, "__ray_metadata__", None)
    return holder if metadata is None else metadata.modified_class


def _wrap(module: ModuleType, place: Place) -> str:
    *holders, name = place.where.split(".")
    owner: object = module
    for holder in holders:
        owner = owner_of(getattr(owner, holder, None))
        if owner is None:
            return f"there is no {holder}"
    on_actor = holders and owner is not getattr(module, holders[0])
    original = getattr(owner, name, None) if on_actor or not holders else vars(owner).get(name)
    if original is None:
        return f"there is no {name}"
    if not isinstance(original, FunctionType):
        return f"{name} is a {type(original).__name__}, not a function"
    if getattr(original, MARK, False):
        return ""
    lacking = [needed for needed in place.needs if needed not in inspect.signature(original).parameters]
    if lacking:
        return f"{name} does not take {', '.join(lacking)}"
    wrapper = place.wrap(original)
    if inspect.iscoroutinefunction(wrapper) is not inspect.iscoroutinefunction(original):
        return f"{name} is {'no' if inspect.iscoroutinefunction(wrapper) else 'a'} coroutine here"
    setattr(wrapper, MARK, True)
    setattr(owner, name, wrapper)
    return ""
