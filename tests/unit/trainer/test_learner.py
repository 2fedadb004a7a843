"""
The learner.
"""

from pathlib import Path

import pytest
import torch

from stepscope_trainer import checkpoint
from stepscope_trainer.config import JobError
from stepscope_trainer.learner import Learner
from stepscope_trainer.model import Characters, build
from stepscope_trainer.task import Arithmetic


def learner(seed: int = 0) -> Learner:
    """
    One that learns alone.
    """
    return Learner(build(seed=seed), rate=5e-4, sum_over_ranks=lambda tensor: None)


def test_a_checkpoint_goes_on_where_it_was_taken(tmp_path: Path) -> None:
    """
    Weights, optimizer state and so all that follows are the same to the last bit.
    """
    task = Arithmetic(Characters(), seed=0)
    first, second = learner(), learner(seed=5)
    first.warm_up(task, steps=3)
    checkpoint.save(tmp_path, {"learner": first.state(), "version": 4}, version=4)
    version, path = checkpoint.find(tmp_path, "latest")
    state = checkpoint.load(path)
    second.restore(state["learner"])
    first.warm_up(task, steps=2)
    second.warm_up(task, steps=2)

    assert (4, 4) == (version, state["version"])
    for name, value in first.weights().items():
        assert torch.equal(value, second.weights()[name]), name


def test_weights_that_were_handed_out_stay_as_they_were() -> None:
    """
    An update afterwards does not reach into them.
    """
    one = learner()
    before = one.weights()
    copy = {name: value.clone() for name, value in before.items()}
    one.warm_up(Arithmetic(Characters(), seed=0), steps=1)

    assert all(torch.equal(before[name], copy[name]) for name in before)
    assert any(not torch.equal(before[name], value) for name, value in one.weights().items())


def test_the_newest_version_is_the_latest_and_a_partial_file_is_none(tmp_path: Path) -> None:
    """
    ``latest`` is the highest number, not the last name; what was not finished is not seen.
    """
    for version in (2, 10, 9):
        checkpoint.save(tmp_path, {"version": version}, version=version)
    (tmp_path / "version-000011.1.partial").write_bytes(b"half")

    assert 10 == checkpoint.find(tmp_path, "latest")[0]
    assert 2 == checkpoint.find(tmp_path, "2")[0]
    with pytest.raises(JobError, match="versions 2, 9, 10"):
        checkpoint.find(tmp_path, "3")
    with pytest.raises(JobError, match="no checkpoint"):
        checkpoint.find(tmp_path / "nowhere", "latest")
