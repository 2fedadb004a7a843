"""
A trainer whose steps begin when they are told to: step S once the folder of the first argument holds a file ``S``.

Run as ``python -m tests.integration.paced_loop FOLDER STEPS``. It loads torch, so that a selected step is recorded.
"""

import sys
import threading
from pathlib import Path

import torch

import stepscope

DEADLINE = 240.0
"""Seconds that a step may be waited for."""


def wait(path: Path) -> None:
    """
    Until ``path`` is there.
    """
    pause = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if path.exists():
            return
        pause.wait(0.02)
    raise TimeoutError(f"{path} has not come")


def main() -> None:
    """
    All steps.
    """
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    stepscope.init(role="trainer", total_steps=steps)
    model = torch.nn.Linear(8, 8)
    for step in range(1, steps + 1):
        wait(folder / str(step))
        with stepscope.step():
            with stepscope.span(
                "train.update_actor",
                bucket="productive",
                attributes={"rl.mini_batch": 0, "rl.samples": 4, "rl.reward": step / 10, "user.secret": "hunter2"},
            ):
                model(torch.ones(4, 8)).square().sum().backward()
            with stepscope.span("train.wait_samples", bucket="idle"):
                threading.Event().wait(0.02)
            stepscope.consumed(mini_batch=0, rows=[(f"s{step}", step - 1, step - 1, None)])
            stepscope.weights_published(step)


if __name__ == "__main__":
    main()
