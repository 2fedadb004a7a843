"""
What a rollouter hands over: groups of samples of one prompt, each token with the version that generated it.

Plain data that crosses processes. Owns no behaviour.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """
    ``count`` answers to one prompt are wanted, drawn from ``seed``.
    """

    number: int
    prompt: tuple[int, ...]
    count: int
    seed: int
    limit: int
    end: int
    temperature: float = 1.0
    carrier: Mapping[str, str] = field(default_factory=dict)
    """Trace context of the span that stands for it, where there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """
    One answer: its tokens (the end token included), and for each its log-prob and the version it was drawn under.
    """

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    versions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """
    An answer with its reward.
    """

    id: str
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    versions: tuple[int, ...]
    reward: float

    @property
    def oldest(self) -> int:
        """
        The version of the first token.
        """
        return min(self.versions)

    @property
    def newest(self) -> int:
        """
        The version of the last token.
        """
        return max(self.versions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """
    The samples of one request, with the trace context of the span that generated them.
    """

    number: int
    replica: int
    prompt: tuple[int, ...]
    samples: tuple[Sample, ...]
    carrier: dict[str, str] = field(default_factory=dict)

    @property
    def oldest(self) -> int:
        """
        The oldest version that any of its tokens was generated under.
        """
        return min(sample.oldest for sample in self.samples)


def ranges(versions: Sequence[int]) -> str:
    """
    Which of a completion's tokens each version generated, as ``v3[0:5] v4[5:9]``.
    """
    parts, begin = [], 0
    for version, run in itertools.groupby(versions):
        end = begin + len(list(run))
        parts.append(f"v{version}[{begin}:{end}]")
        begin = end
    return " ".join(parts)
