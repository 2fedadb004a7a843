"""
The weight channel.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from stepscope_trainer.weights import NoReplicasError, WeightChannel


@dataclass(frozen=True)
class Answer:
    """
    An acknowledgement, by shape.
    """

    busy_seconds: float = 2.0
    log_probs: list[list[float]] = field(default_factory=lambda: [[0.0, -1.0]])
    validated: int = 0
    right: int = 0


class Transport:
    """
    Calls are names; ``answers`` says what comes back, and what is missing never does.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.waited: list[float] = []

    def put(self, value: Any) -> Any:
        return value

    def wait(self, refs: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        self.waited.append(timeout)
        done = [ref for ref in refs if ref in self.answers]
        return done, [ref for ref in refs if ref not in done]

    def get(self, refs: Any) -> Any:
        if isinstance(self.answers[refs], Exception):
            raise self.answers[refs]
        return self.answers[refs]


def channel(answers: Mapping[str, Any], given_up: list[int]) -> tuple[WeightChannel, Transport]:
    """
    Three replicas whose calls are ``r0``, ``r1`` and ``r2``.
    """

    def call(name: str) -> Callable[..., Any]:
        return lambda version, weights, **_: name

    transport = Transport(answers)
    replicas = {rank: call(f"r{rank}") for rank in range(3)}
    return WeightChannel(replicas, transport=transport, deadline=7.0, give_up=given_up.append), transport


def test_a_silent_and_a_dead_replica_are_given_up_and_named() -> None:
    """
    The version counts as published by the others, and the next one does not wait for those again.
    """
    given_up: list[int] = []
    weights, transport = channel({"r0": Answer(), "r2": ValueError("it died")}, given_up)
    weights.send(3, {}, probe=[], validate=False)
    found = weights.wait()
    weights.send(4, {}, probe=[], validate=False)
    again = weights.wait()

    assert {0} == set(found.acknowledged)
    assert {1: "no acknowledgement within 7 s", 2: "it died"} == found.given_up
    assert [1, 2] == sorted(given_up)
    assert {} == again.given_up
    assert [7.0, 7.0] == transport.waited
    assert 1 == weights.live


def test_a_replica_that_died_without_a_word_is_named_by_its_error() -> None:
    """
    The run goes on with the others all the same.
    """
    weights, _ = channel({"r0": Answer(), "r2": ValueError()}, [])
    weights.send(3, {}, probe=[], validate=False)

    assert "ValueError" == weights.wait().given_up[2]


def test_a_run_without_replicas_ends() -> None:
    """
    When nobody acknowledges, nobody will ever generate.
    """
    weights, _ = channel({}, [])
    weights.send(1, {}, probe=[], validate=False)

    with pytest.raises(NoReplicasError, match="no rollouter is left"):
        weights.wait()


def test_what_the_replicas_found_is_put_together() -> None:
    """
    Validation over all shares, generation as a mean, and the largest difference of any log-prob.
    """
    answers = {
        "r0": Answer(validated=7, right=7),
        "r1": Answer(validated=3, right=1, busy_seconds=5.0),
        "r2": Answer(log_probs=[[0.0, -1.25]]),
    }
    weights, _ = channel(answers, [])
    weights.send(1, {}, probe=[], validate=True)
    found = weights.wait()

    assert 0.8 == found.validation
    assert 3.0 == found.busy_seconds
    assert 0.25 == found.gap([[0.0, -1.0]])
