"""
Which report of a node is the latest: one that was held up on its way, or is sent again, tells of what is past.

Owns the numbers that a node's sidecars have given their reports; leaves what is done with a late one to ``nodes``.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

MAX_PAST = 16
"""Sidecars of one node that are remembered as gone: one that has been restarted more often has other troubles."""


class Sequences(Generic[T]):
    """
    The last number of each node's sidecar, and which of its sidecars went before it.
    """

    def __init__(self) -> None:
        """
        Nobody has been heard.
        """
        self._last: dict[T, dict[str, int]] = {}

    def late(self, teller: T, *, instance: str, sequence: int) -> bool:
        """
        Whether report ``sequence`` of ``instance`` is older than one that was heard; if not, it is the latest now.

        A node of a former release numbers nothing, and is never late.
        """
        if not instance:
            return False
        known = self._last.setdefault(teller, {})
        if instance in known and (instance != next(reversed(known)) or sequence <= known[instance]):
            return True
        known[instance] = sequence
        while len(known) > MAX_PAST:
            del known[next(iter(known))]
        return False

    def displaced(self, teller: T, *, instance: str, sequence: int) -> bool:
        """
        Whether ``instance`` goes on telling though another has come in its place: then both live, under one name.
        """
        known = self._last.get(teller, {})
        return instance in known and instance != next(reversed(known)) and sequence > known[instance]

    def forget(self, teller: T) -> None:
        """
        The node is not kept any more.
        """
        self._last.pop(teller, None)
