"""
What a replica is given: a task to answer, and the queue that it works for. Shapes only.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from stepscope_rollouter.queue import Claim
from stepscope_rollouter.samples import Group


class Task(Protocol):
    """
    What is asked, and what an answer is worth.
    """

    @property
    def validation(self) -> Sequence[Any]:
        """
        The problems held out.
        """

    @property
    def end(self) -> int:
        """
        The token that ends an answer.
        """

    @property
    def answer_tokens(self) -> int:
        """
        The most tokens of an answer.
        """

    def problem(self, number: int) -> Any:
        """
        Training problem ``number``.
        """

    def reward(self, problem: Any, tokens: Sequence[int]) -> float:
        """
        What ``tokens`` earn as an answer.
        """


class Queue(Protocol):
    """
    The calls of the sample queue that a replica makes.
    """

    async def claim(self, replica: int, *, version: int, count: int) -> Claim:
        """
        Prompts to generate for.
        """

    async def room(self, replica: int, *, version: int) -> None:
        """
        Returns when a claim can succeed.
        """

    async def put(self, group: Group) -> None:
        """
        Hand samples over.
        """

    async def discard(self, number: int, *, replica: int, samples: int) -> None:
        """
        Report samples dropped here.
        """
