"""
What the sidecar does again and again goes on, whatever it fails of once: a full disk, a damaged file, a fault of ours.

Owns the complaint, which is made once until it has gone well again. When something is done is of who has it done.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

LOG = logging.getLogger(__name__)

T = TypeVar("T")


class Steady:
    """
    Does what may fail. Use it in one event loop.
    """

    def __init__(self) -> None:
        """
        Nothing has failed so far.
        """
        self._failing: set[str] = set()

    def do(self, act: Callable[[], object]) -> None:
        """
        Do ``act`` here and now.
        """
        try:
            act()
        except Exception as error:  # noqa: BLE001 - what this module is for
            self._complain(act, error)
        else:
            self._failing.discard(_name(act))

    async def wait(self, act: Callable[[], Awaitable[T]]) -> T | None:
        """
        Do ``act`` and wait for it; None where it failed.
        """
        try:
            found = await act()
        except Exception as error:  # noqa: BLE001 - what this module is for
            self._complain(act, error)
            return None
        self._failing.discard(_name(act))
        return found

    async def aside(self, act: Callable[[], T]) -> T | None:
        """
        Do ``act``, which may block, on a thread, and wait for it; None where it failed.
        """
        return await self.wait(functools.partial(asyncio.to_thread, act))

    def _complain(self, act: object, error: Exception) -> None:
        what = _name(act)
        if what not in self._failing:
            LOG.error("%s failed, and is tried again: %s", what, error, exc_info=error)
        self._failing.add(what)


def _name(act: object) -> str:
    while isinstance(act, functools.partial):
        act = act.args[0] if act.func is asyncio.to_thread else act.func
    return str(getattr(act, "__qualname__", act))
