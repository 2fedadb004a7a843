"""
The task: addition with a verifiable reward, ``07+05=`` → ``12``.

Owns which problems exist, which are held out, and when an answer is right. Pure: a problem is a function of seed and
number, so that any process that knows the number knows the problem.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope_trainer.model import Codec

LARGEST = 9
"""Numbers up to 9, written with two digits: the warm-up reaches a third of them, and 12 steps twice that. Numbers up to
19 take some hundred steps."""

HELD_OUT = 20
"""A fifth of the 100 additions is never trained on. A policy this small learns the others by heart: its score here
stays near chance, and what validation shows is when and where it runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """
    A prompt in tokens, and the answer in text.
    """

    prompt: tuple[int, ...]
    answer: str


class Arithmetic:
    """
    Additions of two numbers, each written with two digits as is the sum, so that length says nothing about it.
    """

    def __init__(self, codec: Codec, *, seed: int) -> None:
        """
        Problems drawn by ``seed`` and written by ``codec``.
        """
        pairs = [(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]
        random.Random(f"held out {seed}").shuffle(pairs)  # noqa: S311 - a draw of problems, not of secrets
        self._codec = codec
        self._seed = seed
        self._pairs = pairs[HELD_OUT:]
        self.validation = tuple(self._problem(*pair) for pair in pairs[:HELD_OUT])

    @property
    def end(self) -> int:
        """
        The token that ends an answer.
        """
        return self._codec.end

    @property
    def answer_tokens(self) -> int:
        """
        The most tokens an answer may take, its end included.
        """
        return len(self._codec.encode(f"{2 * LARGEST:02d}")) + 1

    def problem(self, number: int) -> Problem:
        """
        Training problem ``number``, of endlessly many; none is held out.
        """
        draw = random.Random(f"problem {self._seed} {number}")  # noqa: S311
        return self._problem(*draw.choice(self._pairs))

    def demonstration(self, number: int, *, random_share: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """
        Prompt and answer in tokens, for supervision; ``random_share`` of the answers are a random number.
        """
        draw = random.Random(f"demonstration {self._seed} {number}")  # noqa: S311
        problem = self._problem(*draw.choice(self._pairs))
        wrong = draw.random() < random_share
        answer = f"{draw.randint(0, 99):02d}" if wrong else problem.answer
        return problem.prompt, (*self._codec.encode(answer), self.end)

    def reward(self, problem: Problem, tokens: Sequence[int]) -> float:
        """
        1 when ``tokens`` are exactly the answer and its end, else 0.
        """
        *answer, last = tokens or (-1,)
        return float(last == self.end and self.end not in answer and self._codec.decode(answer) == problem.answer)

    def _problem(self, a: int, b: int) -> Problem:
        return Problem(prompt=tuple(self._codec.encode(f"{a:02d}+{b:02d}=")), answer=f"{a + b:02d}")
