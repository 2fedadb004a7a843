"""
Ranks of verl's replicas: rank 0, which is recorded by default, is one that generates.
"""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.complaints import Complaints
from stepscope.integrations.verl import loop, replicas, server
from stepscope.testing import capture_spans


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A process that has started nothing, was told nothing, and has complained of nothing.
    """
    monkeypatch.setattr(replicas, "started", replicas.Started())
    monkeypatch.setattr(replicas, "told", replicas.Told())
    monkeypatch.setattr(replicas, "complaints", Complaints())


class Handle:
    """
    Stands in for the handle of a server's actor.
    """

    def __init__(self, ranks: list[int]) -> None:
        self._ranks = ranks
        self.__ray_call__ = self

    async def remote(self, function: Callable[[object, int], None], rank: int) -> None:
        """
        Note ``rank``, once it is awaited.
        """
        assert replicas.take is function
        self._ranks.append(rank)


def start(mode: str, *, count: int, servers: int = 1) -> list[list[int]]:
    """
    verl starts ``count`` replicas. What the servers of each are told then and later, in the order of verl's ranks.
    """
    ranks: list[list[int]] = [[] for _ in range(count)]

    async def original(manager: Any) -> None:
        manager.rollout_replicas = [
            SimpleNamespace(rollout_mode=SimpleNamespace(value=mode), servers=[Handle(told) for _ in range(servers)])
            for told in ranks
        ]

    asyncio.run(replicas.starts(original)(SimpleNamespace()))
    return ranks


def test_replicas_with_devices_of_their_own_come_first() -> None:
    """
    verl starts those on the trainer's devices first, and numbers them from 0; all servers of a replica have its rank.
    """
    sharing = start("hybrid", count=2)
    apart = start("standalone", count=3, servers=2)

    assert [[0, 0], [1, 1], [2, 2]] == apart
    assert [[3], [4]] == sharing


@pytest.mark.parametrize("mode", ["hybrid", "standalone", "colocated"])
def test_replicas_of_one_kind_keep_the_ranks_that_verl_gives_them(mode: str) -> None:
    """
    Nobody is told anything.
    """
    assert [[], []] == start(mode, count=2)


def test_a_second_job_of_the_process_counts_its_own() -> None:
    """
    Of the one before nothing is left.
    """
    start("hybrid", count=2)
    start("standalone", count=1)

    assert [[]] == start("standalone", count=1)


def test_a_server_that_does_not_answer_costs_no_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Its replica keeps the rank that verl gave it, and the log says so.
    """

    async def never(handle: Handle, *told: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(replicas, "ANSWER", 0.01)
    monkeypatch.setattr(Handle, "remote", never)

    start("hybrid", count=1)
    start("standalone", count=1)

    assert "telling replicas their ranks" in caplog.text


@pytest.mark.parametrize(("told", "rank"), [(None, 2), (0, 0)])
def test_a_server_registers_with_the_rank_that_it_was_told(
    monkeypatch: pytest.MonkeyPatch, told: int | None, rank: int
) -> None:
    """
    And with verl's own where it was told none.
    """
    enrolled: list[dict[str, Any]] = []
    monkeypatch.setattr(loop, "enrol", lambda **said: enrolled.append(said))
    if told is not None:
        replicas.take(None, told)

    async def original(held: object, version: int) -> None:
        return

    with capture_spans(role="another"):
        asyncio.run(server.weights_come(original)(SimpleNamespace(replica_rank=2), 5))

    assert [{"role": "rollouter", "rank": rank, "version": 5}] == enrolled


def test_a_server_without_a_rank_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In a verl that has renamed it, the weights come all the same.
    """
    enrolled: list[dict[str, Any]] = []
    monkeypatch.setattr(loop, "enrol", lambda **said: enrolled.append(said))

    async def original(held: object, version: int) -> str:
        return "there"

    with capture_spans(role="another"):
        assert "there" == asyncio.run(server.weights_come(original)(SimpleNamespace(), 5))

    assert [] == enrolled
