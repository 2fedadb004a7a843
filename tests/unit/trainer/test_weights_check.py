"""
A rollouter that took other weights in than were sent ends the job.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from stepscope_trainer import model, scope
from stepscope_trainer.config import Config
from stepscope_trainer.task import Arithmetic
from stepscope_trainer.weights import WeightChannel
from stepscope_trainer.worker import TrainerRank, WeightsError


class Channel:
    """
    One whose replicas' log-probs are off by ``gap``.
    """

    def __init__(self, gap: float) -> None:
        self.gap = gap

    def send(self, version: int, weights: object, **_: Any) -> None:
        """
        Gone.
        """

    def wait(self) -> Any:
        """
        Acknowledged.
        """
        return SimpleNamespace(gap=lambda _: self.gap)


def publish(gap: float, **settings: Any) -> None:
    """
    Send the weights that a run begins with to such a replica.
    """
    TrainerRank(
        Config(**settings),
        rank=0,
        model=lambda: model.build(seed=0),
        task=lambda: Arithmetic(model.codec(), seed=0),
        scope=lambda: scope.load(enabled=False),
        take=lambda _: cast("Any", None),
        channel=lambda: cast("WeightChannel", Channel(gap)),
    )._publish_first()


@pytest.mark.parametrize("gap", [0.11, 7.0, float("nan")])
def test_other_log_probs_than_the_trainers_end_the_job(gap: float) -> None:
    """
    What is no number is no agreement either.
    """
    with pytest.raises(WeightsError, match=r"--log-prob-tolerance 0\.1"):
        publish(gap)


def test_what_is_within_the_tolerance_goes_on() -> None:
    """
    As does everything where none is set.
    """
    publish(0.09)
    publish(0.5, log_prob_tolerance=0.6)
    publish(7.0, log_prob_tolerance=0.0)
