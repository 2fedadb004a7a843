"""
The sample queue.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from stepscope_rollouter.queue import Batch, Claim, SampleQueue
from stepscope_rollouter.samples import Group, Sample

T = TypeVar("T")


def group(number: int, *, replica: int = 0, versions: tuple[int, ...] = (0, 0)) -> Group:
    """
    Two samples of prompt ``number``.
    """
    samples = tuple(
        Sample(id=f"{number}.{i}", tokens=(1, 2), log_probs=(0.0, 0.0), versions=versions, reward=1.0) for i in range(2)
    )
    return Group(number=number, replica=replica, prompt=(1,), samples=samples)


def run(body: Coroutine[Any, Any, T]) -> T:
    """
    Run ``body``, which must not wait for ever.
    """
    return asyncio.run(asyncio.wait_for(body, 20))


def test_what_is_generated_runs_ahead_as_far_as_staleness_allows() -> None:
    """
    Under version v: the prompts of the steps up to v + 1 + staleness, and not one more until new weights.
    """

    async def body() -> list[Claim]:
        queue = SampleQueue(per_step=2, steps=9, capacity=9, staleness=1)
        return [
            await queue.claim(0, version=0, count=3),
            await queue.claim(1, version=0, count=3),
            await queue.claim(0, version=0, count=1),
            await queue.claim(0, version=1, count=9),
        ]

    found = run(body())

    assert [(0, 1, 2), (3,), (), (4, 5)] == [claim.numbers for claim in found]
    assert ["", "", "weights", ""] == [claim.wait_for for claim in found]


def test_the_queue_is_bounded() -> None:
    """
    What is claimed and not taken never exceeds the capacity, and who asks is told so.
    """

    async def body() -> tuple[Claim, Claim, Claim]:
        queue = SampleQueue(per_step=2, steps=9, capacity=3, staleness=5)
        first = await queue.claim(0, version=0, count=9)
        for number in first.numbers:
            await queue.put(group(number))
        full = await queue.claim(0, version=0, count=9)
        waiting = asyncio.create_task(queue.room(0, version=0))
        await queue.take(1)
        await waiting
        return first, full, await queue.claim(0, version=0, count=9)

    first, full, after = run(body())

    assert (0, 1, 2) == first.numbers
    assert Claim(wait_for="capacity") == full
    assert (3, 4) == after.numbers
    with pytest.raises(ValueError, match="no step could start"):
        SampleQueue(per_step=4, steps=1, capacity=3, staleness=0)


def test_every_rank_takes_the_same_groups() -> None:
    """
    Whoever asks first, and whether or not there is enough yet.
    """

    async def body() -> list[Batch]:
        queue = SampleQueue(per_step=2, steps=2, capacity=4, staleness=0)
        takers = [asyncio.create_task(queue.take(1)) for _ in range(3)]
        await queue.claim(0, version=0, count=2)
        for number in (1, 0):
            await queue.put(group(number))
        return await asyncio.gather(*takers, queue.take(1))

    found = run(body())

    assert 1 == len({id(batch) for batch in found})
    assert [1, 0] == [each.number for each in found[0].groups]


def test_stale_samples_are_dropped_counted_and_generated_anew() -> None:
    """
    By their oldest token; the step still gets as many prompts as it needs.
    """

    async def body() -> tuple[Batch, Claim]:
        queue = SampleQueue(per_step=2, steps=3, capacity=6, staleness=1)
        await queue.claim(0, version=1, count=4)
        await queue.put(group(0, versions=(0, 2)))
        await queue.put(group(1, versions=(1, 2)))
        taker = asyncio.create_task(queue.take(3))
        await asyncio.sleep(0)
        again = await queue.claim(0, version=2, count=9)
        for number in (2, 3):
            await queue.put(group(number, versions=(2, 2)))
        return await taker, again

    batch, again = run(body())

    assert [1, 2] == [each.number for each in batch.groups]
    assert 2 == batch.dropped
    assert 3 == len(again.numbers)


def test_what_a_replica_drops_itself_counts_too() -> None:
    """
    And is generated anew.
    """

    async def body() -> tuple[Batch, Claim]:
        queue = SampleQueue(per_step=1, steps=1, capacity=2, staleness=0)
        await queue.claim(0, version=0, count=1)
        await queue.discard(0, replica=0, samples=2)
        again = await queue.claim(0, version=0, count=1)
        await queue.put(group(1))
        return await queue.take(1), again

    batch, again = run(body())

    assert (1,) == again.numbers
    assert 2 == batch.dropped


def test_a_lost_replicas_prompts_go_to_others() -> None:
    """
    It gets no more, and what it sends late is ignored.
    """

    async def body() -> tuple[Claim, Claim, Batch]:
        queue = SampleQueue(per_step=2, steps=1, capacity=2, staleness=0)
        await queue.claim(0, version=0, count=2)
        await queue.forget(0)
        lost = await queue.claim(0, version=0, count=2)
        other = await queue.claim(1, version=0, count=2)
        for replica in (0, 1):
            for number in (0, 1):
                await queue.put(group(number, replica=replica))
        return lost, other, await queue.take(1)

    lost, other, batch = run(body())

    assert Claim(closed=True) == lost
    assert (0, 1) == other.numbers
    assert {1} == {each.replica for each in batch.groups}


def test_nothing_beyond_the_last_step_is_generated_and_a_resume_begins_behind_its_version() -> None:
    """
    A run of 4 steps that goes on after version 3 has the prompts of step 4 left.
    """

    async def body() -> Claim:
        queue = SampleQueue(per_step=2, steps=4, capacity=9, staleness=5, version=3)
        return await queue.claim(0, version=3, count=9)

    assert (6, 7) == run(body()).numbers


def test_closing_wakes_everybody() -> None:
    """
    Trainers that wait for samples and replicas that wait for room.
    """

    async def body() -> tuple[Batch, Claim]:
        queue = SampleQueue(per_step=1, steps=1, capacity=1, staleness=0)
        await queue.claim(0, version=0, count=1)
        waits = [asyncio.create_task(queue.take(1)), asyncio.create_task(queue.room(0, version=0))]
        again = asyncio.create_task(queue.room(0, version=0))
        await asyncio.sleep(0)
        await queue.close()
        await asyncio.gather(*waits, again)
        return await queue.take(1), await queue.claim(0, version=0, count=1)

    batch, claim = run(body())

    assert batch.closed
    assert claim.closed


def test_a_drop_makes_room_for_whoever_waits_for_it() -> None:
    """
    All prompts are claimed and handed in, and nobody else would wake the replica: the run stood still.
    """

    async def body() -> tuple[Claim, Batch]:
        queue = SampleQueue(per_step=1, steps=2, capacity=2, staleness=0, version=1)
        await queue.claim(0, version=1, count=1)
        await queue.put(group(1, versions=(0, 0)))
        waiting = asyncio.create_task(queue.room(0, version=1))
        await asyncio.sleep(0)
        taker = asyncio.create_task(queue.take(2))
        await waiting
        again = await queue.claim(0, version=1, count=1)
        await queue.put(group(again.numbers[0], versions=(1, 1)))
        return again, await taker

    again, batch = run(body())

    assert (2,) == again.numbers
    assert [2] == [each.number for each in batch.groups]


class Fleet:
    """
    Replicas that generate and are updated, each at its own pace, and a trainer that takes every step.
    """

    def __init__(self, seed: int) -> None:
        self._pace = random.Random(seed)
        self._steps, self._staleness = self._pace.randint(1, 6), self._pace.randint(0, 2)
        self._per_step = self._pace.randint(1, 4)
        self._capacity = self._pace.randint(self._per_step, self._per_step * 4)
        self._versions = [0] * self._pace.randint(1, 3)
        self._changed = [asyncio.Event() for _ in self._versions]
        self._queue = SampleQueue(
            per_step=self._per_step, steps=self._steps, capacity=self._capacity, staleness=self._staleness
        )

    async def train(self) -> int:
        """
        Every step; how many there were.
        """
        replicas = [asyncio.create_task(self._replica(rank)) for rank in range(len(self._versions))]
        taken = 0
        for step in range(1, self._steps + 1):
            await self._while()
            batch = await self._queue.take(step)
            taken += len(batch.groups)
            await asyncio.gather(*(self._update(rank, step) for rank in range(len(self._versions))))
        await self._queue.close()
        await asyncio.gather(*replicas)
        return taken // self._per_step

    async def _update(self, rank: int, version: int) -> None:
        await self._while()
        self._versions[rank] = version
        self._changed[rank].set()

    async def _replica(self, rank: int) -> None:
        flying: set[asyncio.Task[None]] = set()
        while True:
            self._changed[rank].clear()
            version = self._versions[rank]
            claim = await self._queue.claim(rank, version=version, count=2)
            if claim.closed:
                break
            for number in claim.numbers:
                flying.add(asyncio.create_task(self._request(rank, number)))
            if not claim.numbers:
                waits = [asyncio.create_task(self._queue.room(rank, version=version))]
                waits += [asyncio.create_task(self._changed[rank].wait())]  # type: ignore[arg-type]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
        await asyncio.gather(*flying)

    async def _request(self, rank: int, number: int) -> None:
        begun = self._versions[rank]
        await self._while()
        if self._versions[rank] - begun > self._staleness:
            await self._queue.discard(number, replica=rank, samples=2)
        else:
            await self._queue.put(group(number, replica=rank, versions=(begun, self._versions[rank])))

    async def _while(self) -> None:
        for _ in range(self._pace.choice((0, 0, 0, 1, 10, 100))):
            await asyncio.sleep(0)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_run_never_stands_still(first: int) -> None:
    """
    Whatever the pace of replicas and updates, every step gets its samples.
    """

    async def body(seed: int) -> bool:
        fleet = Fleet(seed)
        return fleet._steps == await fleet.train()

    assert all(run(body(seed)) for seed in range(first, first + 100))
