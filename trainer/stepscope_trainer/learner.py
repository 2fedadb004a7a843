"""
What learns: model, AdamW, the supervised warm-up and the update of one mini-batch.

Owns the weights and their optimizer. Collectives come in as one function, so that it learns alike alone and in ranks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stepscope_trainer import grpo
from stepscope_trainer.batch import MiniBatch
from stepscope_trainer.task import Arithmetic

WARMUP_RATE = 1e-3
"""Learns the format and about a third of the answers in 300 steps."""

WARMUP_BATCH = 64
"""Demonstrations per warm-up step; 300 steps take some seconds on one core."""

RANDOM_SHARE = 0.5
"""Half of the demonstrations are wrong: the policy knows without being sharp. With clean ones it has nothing left to
explore, and the reward falls at once."""


class Learner:
    """
    A policy in training. Called on one thread.
    """

    def __init__(self, model: nn.Module, *, rate: float, sum_over_ranks: Callable[[Tensor], None]) -> None:
        """
        Train ``model`` at learning rate ``rate``; ``sum_over_ranks`` sums a tensor in place over all ranks.
        """
        self.model = model
        self._rate = rate
        self._sum = sum_over_ranks
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=rate)

    def warm_up(self, task: Arithmetic, *, steps: int) -> None:
        """
        Supervise for ``steps`` steps on answer tokens. The optimizer's state is kept: a fresh one forgets at once.
        """
        self._set_rate(WARMUP_RATE)
        for step in range(steps):
            pairs = [
                task.demonstration(step * WARMUP_BATCH + i, random_share=RANDOM_SHARE) for i in range(WARMUP_BATCH)
            ]
            tokens = torch.tensor([[*prompt, *answer] for prompt, answer in pairs])
            answers = grpo.log_probs(self.model, tokens)[:, -len(pairs[0][1]) :]
            self._step(-answers.mean())
        self._set_rate(self._rate)

    @torch.no_grad()
    def log_probs(self, batches: Sequence[MiniBatch]) -> list[Tensor]:
        """
        The log-probs of each of ``batches`` under the weights as they are.
        """
        return [grpo.log_probs(self.model, batch.tokens) for batch in batches]

    @torch.no_grad()
    def row_log_probs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """
        The log-prob of each token of ``rows`` given those before it; 0 for the first.
        """
        width = max(map(len, rows))
        padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
        values: list[list[float]] = grpo.log_probs(self.model, padded).tolist()
        return [found[: len(row)] for found, row in zip(values, rows, strict=True)]

    def update(self, batch: MiniBatch, *, old: Tensor) -> float:
        """
        One optimizer step on ``batch``; every rank takes it with its own share. Returns this rank's part of the loss.
        """
        loss = grpo.loss(
            grpo.log_probs(self.model, batch.tokens),
            old=old,
            behaviour=batch.behaviour,
            advantage=batch.advantage,
            mask=batch.mask,
            tokens=batch.answer_tokens,
        )
        self._step(loss, over_ranks=True)
        return float(loss.detach())

    def weights(self) -> dict[str, Tensor]:
        """
        A copy of the weights, which later updates leave alone.
        """
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def state(self) -> dict[str, Any]:
        """
        All that ``restore`` needs.
        """
        return {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """
        Become what ``state`` was taken of, at this learner's own rate.
        """
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._set_rate(self._rate)

    def _step(self, loss: Tensor, *, over_ranks: bool = False) -> None:
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if over_ranks:
            gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            self._sum(flat)
            for gradient, part in zip(gradients, torch.split(flat, [each.numel() for each in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))
        self._optimizer.step()

    def _set_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate
