"""
The mathematics of GRPO.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stepscope_trainer import grpo
from stepscope_trainer.model import build


def loss(new: Tensor, old: Tensor, behaviour: Tensor, advantage: float) -> float:
    """
    The loss of one sample of as many tokens as ``new`` has.
    """
    value = grpo.loss(
        new[None],
        old=old[None],
        behaviour=behaviour[None],
        advantage=torch.tensor([advantage]),
        mask=torch.ones(1, len(new)),
        tokens=len(new),
    )
    return float(value)


def test_advantages_compare_within_the_group() -> None:
    """
    In standard deviations from the group's mean; a group that agrees has none.
    """
    found = grpo.advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]]))

    assert [0.866, -0.866, -0.866, 0.866] == pytest.approx(found[0].tolist(), abs=1e-3)
    assert [0.0] * 4 == found[1].tolist()


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=16))
def test_advantages_of_a_group_cancel(rewards: list[float]) -> None:
    """
    Their mean is 0 and their size is bounded.
    """
    found = grpo.advantages(torch.tensor([rewards]))

    assert 0.0 == pytest.approx(float(found.mean()), abs=1e-5)
    assert float(found.abs().max()) <= len(rewards) ** 0.5


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.0, 1.0, -1.0), (2.0, 1.0, -1.28), (2.0, -1.0, 2.0), (0.5, 1.0, -0.5), (0.5, -1.0, 0.8)],
)
def test_the_ratio_is_clipped_where_it_would_gain(ratio: float, advantage: float, expected: float) -> None:
    """
    At 1.28 upwards for a good sample and at 0.8 downwards for a bad one; never where it would lose.
    """
    old = torch.zeros(1)
    new = torch.tensor([ratio]).log()

    assert expected == pytest.approx(loss(new, old, old, advantage))


def test_stale_tokens_are_weighted_and_the_weight_is_bounded() -> None:
    """
    A token more likely now than when it was generated counts more, at most twice.
    """
    zero = torch.zeros(1)

    assert -1.5 == pytest.approx(loss(zero, zero, torch.tensor([1 / 1.5]).log(), 1.0))
    assert -2.0 == pytest.approx(loss(zero, zero, torch.tensor([0.1]).log(), 1.0))
    assert -0.5 == pytest.approx(loss(zero, zero, torch.tensor([2.0]).log(), 1.0))


def test_log_probs_are_those_of_a_plain_softmax() -> None:
    """
    Of each token given those before it; the first has none. Padding on the right changes nothing.
    """
    model = build(seed=1).requires_grad_(False)
    rows = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    expected = model(rows).softmax(-1)
    found = grpo.log_probs(model, rows)
    padded = grpo.log_probs(model, torch.nn.functional.pad(rows, (0, 3)))

    assert torch.equal(torch.zeros(2), found[:, 0])
    for row in range(2):
        for place in range(1, 4):
            token = int(rows[row, place])
            assert float(expected[row, place - 1, token].log()) == pytest.approx(float(found[row, place]), abs=1e-5)
    assert torch.allclose(found, padded[:, :4], atol=1e-5)
