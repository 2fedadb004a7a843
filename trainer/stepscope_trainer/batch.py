"""
A step's samples as the trainer sees them: shared out over mini-batches and ranks, then as tensors.

The classes of the rollouter are known here by their shape only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stepscope_trainer import grpo


class SampleLike(Protocol):
    """
    One answer to a prompt.
    """

    @property
    def id(self) -> str:
        """
        Its name in the sample table.
        """

    @property
    def tokens(self) -> tuple[int, ...]:
        """
        The answer.
        """

    @property
    def log_probs(self) -> tuple[float, ...]:
        """
        Of each token, under the version that generated it.
        """

    @property
    def versions(self) -> tuple[int, ...]:
        """
        Of each token.
        """

    @property
    def reward(self) -> float:
        """
        What it earned.
        """


class GroupLike(Protocol):
    """
    The samples of one prompt.
    """

    @property
    def number(self) -> int:
        """
        The number of its problem.
        """

    @property
    def prompt(self) -> tuple[int, ...]:
        """
        The prompt.
        """

    @property
    def samples(self) -> Sequence[SampleLike]:
        """
        The answers.
        """

    @property
    def carrier(self) -> Mapping[str, str]:
        """
        The trace context of the span that generated them.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class MiniBatch:
    """
    One rank's share of a mini-batch; ``answer_tokens`` counts those of all ranks.
    """

    groups: tuple[GroupLike, ...]
    tokens: Tensor
    mask: Tensor
    behaviour: Tensor
    advantage: Tensor
    answer_tokens: int
    reward: float
    staleness: float

    @property
    def samples(self) -> int:
        """
        Samples in this rank's share.
        """
        return int(self.tokens.shape[0])

    @property
    def worked_tokens(self) -> int:
        """
        Tokens of this rank's share, prompts included, padding not.
        """
        return sum(len(group.prompt) + len(sample.tokens) for group in self.groups for sample in group.samples)


def share(groups: Sequence[GroupLike], *, mini_batches: int, rank: int, world: int, version: int) -> list[MiniBatch]:
    """
    The mini-batches of ``rank`` of ``world``, in the order of the prompts' numbers; weights ``version`` are in force.
    """
    ordered = sorted(groups, key=lambda group: group.number)
    wholes = [ordered[i::mini_batches] for i in range(mini_batches)]
    return [_mini_batch(whole[rank::world], whole=whole, version=version) for whole in wholes]


def _mini_batch(groups: Sequence[GroupLike], *, whole: Sequence[GroupLike], version: int) -> MiniBatch:
    rows = [(group.prompt, sample) for group in groups for sample in group.samples]
    width = max(len(prompt) + len(sample.tokens) for prompt, sample in rows)
    tokens, mask, behaviour = [], [], []
    for prompt, sample in rows:
        before, after = [0.0] * len(prompt), [0.0] * (width - len(prompt) - len(sample.tokens))
        tokens.append([*prompt, *sample.tokens, *map(int, after)])
        mask.append([*before, *[1.0] * len(sample.tokens), *after])
        behaviour.append([*before, *sample.log_probs, *after])
    rewards = torch.tensor([[sample.reward for sample in group.samples] for group in groups])
    return MiniBatch(
        groups=tuple(groups),
        tokens=torch.tensor(tokens),
        mask=torch.tensor(mask),
        behaviour=torch.tensor(behaviour),
        advantage=grpo.advantages(rewards).flatten(),
        answer_tokens=sum(len(sample.tokens) for group in whole for sample in group.samples),
        reward=float(rewards.mean()),
        staleness=sum(version - min(sample.versions) for _, sample in rows) / len(rows),
    )
