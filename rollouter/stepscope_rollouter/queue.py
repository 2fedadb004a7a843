"""
The sample queue: which prompts are generated, how far ahead of the weights, and what becomes of stale samples.

One actor between rollouters and trainer. It hands out prompt numbers (``claim``), takes groups in (``put``), and gives
every trainer rank the same step's worth (``take``). Bounded: what is claimed and not yet taken never exceeds the
capacity. No clock and no thread: it runs on one event loop, and waits on a condition.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from stepscope_rollouter.samples import Group


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """
    Prompt numbers to generate for; when there are none, what has to come first: ``weights`` or ``capacity``.
    """

    numbers: tuple[int, ...] = ()
    wait_for: str = ""
    closed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """
    A step's groups, and how many samples were dropped as too stale while it was put together.
    """

    groups: tuple[Group, ...] = ()
    dropped: int = 0
    closed: bool = False


@dataclass(slots=True)
class _Counts:
    claimed: int = 0
    dropped_groups: int = 0
    dropped_samples: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)


class SampleQueue:
    """
    The queue of a run of ``steps`` steps of ``per_step`` prompts; the run goes on after version ``version``.
    """

    def __init__(self, *, per_step: int, steps: int, capacity: int, staleness: int, version: int = 0) -> None:
        """
        Prompts of the steps up to ``version`` count as claimed and trained on.
        """
        if capacity < per_step:
            raise ValueError(f"capacity {capacity} is less than the {per_step} prompts of a step: no step could start")
        self._per_step = per_step
        self._steps = steps
        self._capacity = capacity
        self._staleness = staleness
        self._counts = _Counts(claimed=version * per_step)
        self._version = version
        self._ready: deque[Group] = deque()
        self._returned: deque[int] = deque()
        self._flying: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._assembling: int | None = None
        self._given_up: set[int] = set()
        self._closed = False
        self._changed = asyncio.Condition()

    async def claim(self, replica: int, *, version: int, count: int) -> Claim:
        """
        Up to ``count`` prompts for ``replica``, which holds weights ``version``. Never waits.
        """
        if replica in self._given_up:
            return Claim(closed=True)
        numbers: list[int] = []
        while len(numbers) < count and not self._blocked_by(version):
            number = self._returned.popleft() if self._returned else self._next()
            self._flying[number] = replica
            numbers.append(number)
        wait_for = "" if numbers else self._blocked_by(version)
        return Claim(numbers=tuple(numbers), wait_for=wait_for, closed=self._closed)

    async def room(self, replica: int, *, version: int) -> None:
        """
        Returns when ``replica``, which holds weights ``version``, can claim; or asks again; or the queue is closed.
        """
        self._asked[replica] = mine = self._asked.get(replica, 0) + 1
        await self._notify()
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._closed or self._asked[replica] != mine or not self._blocked_by(version)
            )

    async def put(self, group: Group) -> None:
        """
        Take ``group`` in. One whose number is no longer the sender's (the replica was given up) is ignored.
        """
        if self._flying.get(group.number) == group.replica:
            del self._flying[group.number]
            self._ready.append(group)
            await self._notify()

    async def discard(self, number: int, *, replica: int, samples: int) -> None:
        """
        ``replica`` itself found its samples of prompt ``number`` too stale to hand over.
        """
        if self._flying.get(number) == replica:
            del self._flying[number]
            self._drop(samples)
            await self._notify()

    async def take(self, step: int) -> Batch:
        """
        The groups of ``step``, oldest first; the same ones for each rank that asks. Waits until there are enough.
        """
        if self._assembling == step or step in self._counts.batches:
            async with self._changed:
                await self._changed.wait_for(lambda: self._closed or step in self._counts.batches)
            return self._counts.batches.get(step, Batch(closed=True))
        self._assembling = step
        self._version = step - 1
        async with self._changed:
            await self._changed.wait_for(self._enough)
        if self._closed:
            return Batch(closed=True)
        groups = tuple(self._ready.popleft() for _ in range(self._per_step))
        # A step's later ranks ask for the same batch; nobody asks for the one before again.
        batch = Batch(groups=groups, dropped=self._counts.dropped_samples)
        self._counts.dropped_samples = 0
        self._counts.batches = {step: batch}
        self._assembling = None
        await self._notify()
        return batch

    async def forget(self, replica: int) -> None:
        """
        ``replica`` was given up: others generate for the prompts that it had claimed, and it gets no more.
        """
        self._given_up.add(replica)
        lost = [number for number, owner in self._flying.items() if owner == replica]
        for number in lost:
            del self._flying[number]
        self._returned.extend(lost)
        await self._notify()

    async def close(self) -> None:
        """
        Nobody waits here any longer.
        """
        self._closed = True
        await self._notify()

    def _next(self) -> int:
        self._counts.claimed += 1
        return self._counts.claimed - 1

    def _blocked_by(self, version: int) -> str:
        """
        Why a replica that holds weights ``version`` gets no prompt; "" when it does.
        """
        if self._closed:
            return "weights"
        if self._returned:
            return ""
        # A prompt dropped as stale is generated anew by another number, beyond those that the steps need.
        ahead = min(version + 1 + self._staleness, self._steps) * self._per_step + self._counts.dropped_groups
        if self._counts.claimed >= ahead:
            return "weights"
        return "capacity" if len(self._flying) + len(self._ready) >= self._capacity else ""

    def _enough(self) -> bool:
        """
        Drop what has become too stale, then say whether a step can be put together. The condition is held.
        """
        fresh = [group for group in self._ready if self._version - group.oldest <= self._staleness]
        if len(fresh) < len(self._ready):
            for group in self._ready:
                if self._version - group.oldest > self._staleness:
                    self._drop(len(group.samples))
            # Others are to be generated in their place, and all who could may be waiting for room.
            self._changed.notify_all()
        self._ready = deque(fresh)
        return self._closed or len(self._ready) >= self._per_step

    def _drop(self, samples: int) -> None:
        self._counts.dropped_groups += 1
        self._counts.dropped_samples += samples

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
