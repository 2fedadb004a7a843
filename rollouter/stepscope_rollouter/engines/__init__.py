"""
Engines: what generates. The protocol is here; each engine has a module, imported when it is used.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from stepscope_rollouter.samples import Answer, Request


class Engine(Protocol):
    """
    Generates for one replica. All coroutines run on the replica's event loop; none blocks it longer than a token.
    """

    @property
    def busy_seconds(self) -> float:
        """
        Seconds spent generating so far, pauses and waits excluded.
        """

    @property
    def idle(self) -> bool:
        """
        Whether no request is in hand.
        """

    async def start(self, *, rank: int, traces: str, carrier: Mapping[str, str]) -> None:
        """
        Make ready, once, for replica ``rank``; may block the event loop. Spans of the engine's own, if it has any, go
        to the OTLP/HTTP receiver at ``traces``, those of its start below the one that ``carrier`` names.
        """

    async def generate(self, request: Request) -> tuple[Answer, ...]:
        """
        The answers to ``request``. It lives across updates: what is left continues with the new weights.
        """

    async def pause(self) -> None:
        """
        Bring generation to a halt; requests are kept.
        """

    async def resume(self) -> None:
        """
        Go on with the requests in hand.
        """

    async def load(self, weights: Mapping[str, Tensor], *, version: int) -> None:
        """
        Take ``weights`` in. Only while paused, or before the first request.
        """

    async def greedy(self, prompts: Sequence[Sequence[int]], *, limit: int, end: int) -> list[tuple[int, ...]]:
        """
        The likeliest answer to each prompt, for validation. May be called while paused.
        """

    async def log_probs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """
        The log-prob of each token of each row given those before it; 0 for the first.
        """

    async def close(self) -> None:
        """
        Stop; requests in hand are cancelled.
        """
