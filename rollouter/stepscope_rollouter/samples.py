"""
What a rollouter hands over: groups of samples of one prompt, each token with the version that generated it.

Plain data that crosses processes. Owns no behaviour.
"""

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
