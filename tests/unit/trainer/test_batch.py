"""
Samples shared out over mini-batches and ranks.
"""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from stepscope_trainer import batch
from stepscope_trainer.learner import Learner
from stepscope_trainer.model import build


@dataclass(frozen=True)
class Sample:
    """
    A sample, by shape.
    """

    id: str
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    versions: tuple[int, ...]
    reward: float


@dataclass(frozen=True)
class Group:
    """
    A group, by shape.
    """

    number: int
    prompt: tuple[int, ...]
    samples: tuple[Sample, ...]
    carrier: dict[str, str] = field(default_factory=dict)


def group(number: int) -> Group:
    """
    Two samples of different lengths, one of them right.
    """
    samples = (
        Sample(f"{number}.0", (1, 2, 12), (-0.1, -0.2, -0.3), (1, 1, 2), 1.0),
        Sample(f"{number}.1", (3, 12), (-0.4, -0.5), (2, 2), 0.0),
    )
    return Group(number, (number % 10, 4), samples)


def test_every_sample_is_trained_on_once() -> None:
    """
    Over all mini-batches and ranks, whatever the order in which the groups came.
    """
    groups = [group(number) for number in (5, 2, 7, 0, 1, 6, 3, 4)]
    shares = [batch.share(groups, mini_batches=2, rank=rank, world=2, version=2) for rank in (0, 1)]
    trained = [each.number for share in shares for mini_batch in share for each in mini_batch.groups]

    assert list(range(8)) == sorted(trained)
    assert [0, 4] == [each.number for each in shares[0][0].groups]
    assert [[4, 4], [4, 4]] == [[mini_batch.samples for mini_batch in share] for share in shares]


def test_tensors_hold_answers_under_the_mask_and_nothing_else() -> None:
    """
    Prompt and padding are masked; log-probs lie on their tokens; tokens are counted without padding.
    """
    (found,) = batch.share([group(0)], mini_batches=1, rank=0, world=1, version=2)

    assert [[0, 4, 1, 2, 12], [0, 4, 3, 12, 0]] == found.tokens.tolist()
    assert [[0, 0, 1, 1, 1], [0, 0, 1, 1, 0]] == found.mask.tolist()
    assert [-0.4, -0.5] == pytest.approx(found.behaviour[1, 2:4].tolist())
    assert 9 == found.worked_tokens
    assert 5 == found.answer_tokens
    assert 0.5 == found.reward
    assert 0.5 == found.staleness


def test_two_ranks_learn_what_one_learns() -> None:
    """
    The summed gradients of two shares are the gradient of the whole mini-batch.
    """
    groups = [group(number) for number in range(4)]
    (whole,) = batch.share(groups, mini_batches=1, rank=0, world=1, version=2)
    alone = Learner(build(seed=0), rate=1e-3, sum_over_ranks=lambda tensor: None)
    alone.update(whole, old=alone.log_probs([whole])[0])
    flats: list[Tensor] = []
    shares = [batch.share(groups, mini_batches=1, rank=rank, world=2, version=2)[0] for rank in (0, 1)]

    def add_the_other(tensor: Tensor) -> None:
        flats.append(tensor.clone())
        if len(flats) == 2:
            tensor += flats[0]

    learners = [Learner(build(seed=0), rate=1e-3, sum_over_ranks=add_the_other) for _ in shares]
    for learner, share in zip(learners, shares, strict=True):
        learner.update(share, old=learner.log_probs([share])[0])

    for name, value in alone.weights().items():
        assert torch.allclose(value, learners[1].weights()[name], atol=1e-4), name
