"""
Which step a trace belongs to, for spans of others that do not say so.

A step's trace id is known to everybody, and traces of requests share its first 8 bytes. Steps count as known from
the moment a process is about to enter them.
"""

from collections import OrderedDict
from typing import NamedTuple

from stepscope import ids

AHEAD = 2
"""A span of another program can arrive before the first of ours of its step: steps just ahead are known too."""

REMEMBERED = 10_000
"""Steps kept, about 2 MB; a span that is that many steps late is not worth more."""


class Place(NamedTuple):
    """
    Where in the run something happened.
    """

    step: int
    param_version: int


class Steps:
    """
    The steps of one attempt that have been seen, by the first 8 bytes of their trace ids. For one thread or many.
    """

    def __init__(self, attempt: str) -> None:
        """
        Begin with the first steps of ``attempt``.
        """
        self._attempt = attempt
        self._places: OrderedDict[int, Place] = OrderedDict()
        self._seen: OrderedDict[int, None] = OrderedDict()
        self.seen(0)

    def seen(self, step: int) -> None:
        """
        ``step`` is in progress somewhere.
        """
        if step in self._seen:
            return
        self._seen[step] = None
        for near in range(max(1, step), step + AHEAD + 1):
            self._places[ids.trace_id(self._attempt, near) >> 64] = Place(near, near - 1)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        while len(self._places) > REMEMBERED:
            self._places.popitem(last=False)

    def place(self, head: bytes) -> Place | None:
        """
        The step whose trace ids begin with ``head`` (8 bytes), or None.
        """
        return self._places.get(int.from_bytes(head))
