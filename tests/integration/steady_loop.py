"""
A trainer whose steps are alike to the last operator, but for one step: what differences of recordings are tried on.

Run as ``python -m tests.integration.steady_loop STEPS CHANGED``. In step CHANGED there is one operator more, and one
works on a hundred times as much. Tensors are made before the first step, so that nothing else depends on their sizes.
"""

import sys

import torch

import stepscope

MINI_BATCHES = 8
"""Repetitions: whatever else the machine does, one of them is likely to be left alone."""

CALLS = 20
"""Of each operator in a mini-batch."""

LARGE = 400_000
"""Elements that the slowed operator works on: about a millisecond, far beyond all others together."""


class Work:
    """
    A mini-batch.
    """

    def __init__(self) -> None:
        self._model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.001)
        self._batch = torch.ones(32, 64)
        self._small, self._large = torch.ones(LARGE // 100), torch.ones(LARGE)
        self._sums = torch.ones(64)

    def mini_batch(self, *, changed: bool) -> None:
        """
        Forward, backward, optimizer; then operators of their own.
        """
        self._optimizer.zero_grad()
        for _ in range(CALLS):
            self._model(self._batch).square().mean().backward()
        self._optimizer.step()
        tensor = self._large if changed else self._small
        for _ in range(CALLS):
            torch.erfinv(tensor, out=tensor)
            if changed:
                torch.sinc(self._sums, out=self._sums)


def main(steps: int, changed: int) -> None:
    """
    All steps.
    """
    torch.set_num_threads(1)
    work = Work()
    stepscope.init(role="trainer", total_steps=steps)
    for step in range(1, steps + 1):
        with stepscope.step():
            for number in range(MINI_BATCHES):
                attributes = {"rl.mini_batch": number, "rl.samples": 32}
                with stepscope.span("train.update_actor", bucket="productive", attributes=attributes):
                    work.mini_batch(changed=step == changed)
            stepscope.weights_published(step)
    stepscope.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
