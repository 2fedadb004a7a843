"""
The configuration of the job, and its command line.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from stepscope_trainer import model
from stepscope_trainer.config import Config, JobError, add_arguments, from_arguments


def parsed(*arguments: str) -> Config:
    """
    The configuration that ``arguments`` make.
    """
    parser = ArgumentParser()
    add_arguments(parser)
    return from_arguments(parser.parse_args(arguments))


def test_no_arguments_are_the_defaults() -> None:
    """
    The command line has no defaults of its own.
    """
    assert Config() == parsed()


def test_options_reach_their_field() -> None:
    """
    By their type, flags in both forms.
    """
    found = parsed("--steps", "3", "--no-stepscope", "--sync", "--resume", "latest", "--checkpoints", "here")

    assert Config(steps=3, stepscope=False, sync=True, resume="latest", checkpoints="here") == found
    assert (1, 0, 64) == (found.replicas, found.allowed_staleness, found.requests_per_replica)


def test_test_switches_are_taken_but_not_shown() -> None:
    """
    They are there for the tests of failures; a user has no use for them.
    """
    parser = ArgumentParser()
    add_arguments(parser)

    assert Config(test_fail_at_step=2, test_deaf_replica=1) == parsed(
        "--test-fail-at-step", "2", "--test-deaf-replica", "1"
    )
    assert "--steps" in parser.format_help()
    assert "--test" not in parser.format_help()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"steps": 0}, "--steps 0"),
        ({"samples": 1}, "--samples 1"),
        ({"staleness": -1}, "--staleness -1"),
        ({"prompts": 10, "mini_batches_per_step": 4}, "a multiple of 4"),
        ({"prompts": 64, "mini_batches_per_step": 4, "trainer_ranks": 3}, "a multiple of 12"),
        ({"resume": "latest"}, "--checkpoints DIR"),
        ({"resume": "v3", "checkpoints": "x"}, "a version number, or latest"),
        ({"ack_deadline": 0.0}, "--ack-deadline"),
        ({"engine": "sglang"}, "torch and vllm"),
        ({"engine": "vllm"}, "needs --model PATH"),
        ({"log_prob_tolerance": -1.0}, "--log-prob-tolerance"),
    ],
)
def test_what_cannot_run_is_refused(wrong: dict[str, Any], says: str) -> None:
    """
    With the option, its value and what would do.
    """
    with pytest.raises(JobError, match=says):
        Config(**wrong)


def test_a_model_needs_a_folder_and_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The message names what is missing; nothing is looked for on a network.
    """
    monkeypatch.setitem(sys.modules, "transformers", None)

    with pytest.raises(model.ModelError, match="is no folder"):
        model.codec("gpt2")
    with pytest.raises(model.ModelError, match="pip install transformers"):
        model.build(str(tmp_path))
