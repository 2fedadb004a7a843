"""
A trainer that puts what nobody else may see where it can: its environment, prompts and paths into its recordings.

Run as ``python -m tests.integration.secretive_loop``. The secrets are in its environment, as those of users are. What
the message of an exception says of itself is in its span by intention, but for folders: there is one with a folder.
"""

import json
import os

import torch

import stepscope

STEPS = 3

PROMPT = "PLANTED_PROMPT"
"""The variable that holds a prompt."""


def main() -> None:
    """
    Three steps, each with a request that fails and a recording that is told everything.
    """
    prompt, home = os.environ[PROMPT], os.environ["HOME"]
    model = torch.nn.Linear(8, 8)
    stepscope.init(role="trainer", total_steps=STEPS)
    for step in range(1, STEPS + 1):
        with stepscope.step():
            # What launchers and integrations of others do: all that may help, into the trace, if there is one.
            torch._C._autograd._add_metadata_json("environment", json.dumps(dict(os.environ)))
            torch._C._autograd._add_metadata_json("prompt", json.dumps(prompt))
            try:
                with stepscope.span("rollout.generate", bucket="productive", request=True):
                    raise ValueError(f"no prompts in {home}/prompts.jsonl")
            except ValueError:
                pass
            with (
                stepscope.span("train.update_actor", bucket="productive"),
                torch.profiler.record_function(f"{prompt} {home}/train.py"),
            ):
                model(torch.ones(4, 8)).square().sum().backward()
            stepscope.consumed(mini_batch=0, rows=[(f"sample-{step}", step - 1, step - 1, None)])
            stepscope.weights_published(step)


if __name__ == "__main__":
    main()
