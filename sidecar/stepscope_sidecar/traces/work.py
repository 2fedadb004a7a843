"""
How much work a recording is of, and the unit by which two of them are compared.

Pure. The numbers come out of the store: see ``compared``.
"""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """
    What work is counted in.
    """

    MINI_BATCH = "mini-batch"
    SAMPLE = "sample"
    TOKEN = "token"  # noqa: S105 - of a text
    REQUEST = "request"
    STEP = "step"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """
    What a process did in a recording; 0 where nobody knows.
    """

    steps: int = 1
    mini_batches: int = 0
    samples: float = 0
    tokens: float = 0
    requests: int = 0

    def amount(self, by: Unit) -> float:
        """
        How many units it is.
        """
        return {
            Unit.MINI_BATCH: self.mini_batches,
            Unit.SAMPLE: self.samples,
            Unit.TOKEN: self.tokens,
            Unit.REQUEST: self.requests,
            Unit.STEP: self.steps,
        }[by]


def unit(one: Work, other: Work) -> Unit:
    """
    The unit that both know: mini-batches where they are of one size, else what they are made of.
    """
    alike = one.samples * other.mini_batches == other.samples * one.mini_batches
    order = [Unit.SAMPLE, Unit.MINI_BATCH, Unit.TOKEN, Unit.REQUEST]
    if alike:
        order.insert(0, Unit.MINI_BATCH)
    return next((by for by in order if one.amount(by) > 0 and other.amount(by) > 0), Unit.STEP)
