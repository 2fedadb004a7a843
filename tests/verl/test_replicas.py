"""
Which rank a replica has in the run, as verl's own managers start replicas.
"""

from typing import Any

import pytest

from tests.verl.running import Scenarios, job

SCENARIOS: Scenarios = {
    "separate_async": {"job": "v1", "sharing": 2, "apart": 2},
    "separate_async, apart alone": {"job": "v1", "sharing": 0, "apart": 2},
    "colocated": {"job": "v1", "sharing": 2, "apart": 0},
    "fully_async": {"job": "fully_async", "sharing": 1, "apart": 2},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """
    All scenarios, one after another in one process.
    """
    return job("replicas_job", SCENARIOS, tmp_path_factory.mktemp("replicas"))


def test_rank_0_is_a_replica_that_generates_while_training(runs: dict[str, dict[str, Any]]) -> None:
    """
    It has devices of its own, wherever verl's numbers begin; those on the trainer's devices come last.
    """
    assert [["hybrid", 0, 2], ["hybrid", 1, 3], ["standalone", 2, 0], ["standalone", 3, 1]] == (
        runs["separate_async"]["ranks"]
    )
    assert [["hybrid", 0, 2], ["standalone", 1, 0], ["standalone", 2, 1]] == runs["fully_async"]["ranks"]


def test_replicas_of_one_kind_have_verls_ranks(runs: dict[str, dict[str, Any]]) -> None:
    """
    Whichever kind that is.
    """
    assert [["hybrid", 0, 0], ["hybrid", 1, 1]] == runs["colocated"]["ranks"]
    assert [["standalone", 0, 0], ["standalone", 1, 1]] == runs["separate_async, apart alone"]["ranks"]
