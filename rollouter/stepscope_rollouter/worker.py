"""
A rollouter replica: claims prompts, has its engine answer them, hands samples over, and takes new weights in.

Owns the order of an update on a replica. Everything here runs on one event loop, the boundary calls included, because a
profiler has to be stopped by the thread that started it. The engine, the queue, the task and the instrumentation come
in from the job.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from stepscope_rollouter.engines import Engine
from stepscope_rollouter.ports import Queue, Task
from stepscope_rollouter.queue import Claim
from stepscope_rollouter.samples import Answer, Group, Request, Sample, ranges
from stepscope_rollouter.scope import Scope, Span

CLOSE_SECONDS = 5.0
"""Enough to write a recording and flush the spans of a step; the job kills what takes much longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Acknowledgement:
    """
    A replica has new weights in force. ``busy_seconds`` and ``samples`` are those since the update before.
    """

    replica: int
    version: int
    busy_seconds: float
    samples: int
    log_probs: list[list[float]]
    validated: int = 0
    right: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """
    How a replica works: ``in_hand`` requests claimed and ``slots`` of them generating at the same time.

    In ``lockstep`` none begins before all of them are done, so that batches don't depend on timing. ``deaf`` is a test
    switch: updates are never acknowledged.
    """

    rank: int
    world: int
    total_steps: int
    resumed_from: int | None
    in_hand: int
    slots: int
    lockstep: bool
    samples: int
    staleness: int
    seed: int
    deaf: bool = False


class Rollouter:
    """
    One replica. Every method is a coroutine on one event loop.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        engine: Callable[[], Engine],
        profiler: Callable[[Engine], object | None] = lambda _: None,
        task: Callable[[], Task],
        queue: Queue,
        scope: Callable[[], Scope],
    ) -> None:
        """
        Nothing is built before ``start``, which runs on the event loop. ``profiler`` makes that of a started engine.
        """
        self._plan = plan
        self._build_profiler = profiler
        self._build_engine, self._build_task, self._load_scope = engine, task, scope
        self._queue = queue
        self._version: int | None = None
        self._flying: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(plan.slots)
        self._loop: asyncio.Task[None] | None = None
        self._wait: Span | None = None
        self._busy_before = 0.0
        self._samples = 0
        self._updating = False
        self._error: BaseException | None = None

    async def start(self, *, version: int) -> None:
        """
        Join the run, which goes on after ``version``, and start the engine.
        """
        self._task, self._scope = self._build_task(), self._load_scope()
        self._scope.init(
            role="rollouter",
            rank=self._plan.rank,
            world_size=self._plan.world,
            param_version=version,
            resumed_from=self._plan.resumed_from,
            total_steps=self._plan.total_steps,
        )
        self._engine = self._build_engine()
        await self._engine.start(rank=self._plan.rank, traces=self._scope.otlp_endpoint(), carrier=self._scope.inject())
        profiler = self._build_profiler(self._engine)
        if profiler is not None:
            self._scope.register_profiler(profiler)

    async def update(
        self, version: int, weights: Mapping[str, Tensor], *, probe: Sequence[Sequence[int]], validate: bool
    ) -> Acknowledgement:
        """
        Take ``weights`` in, in the order that windows rely on: pause, loading, load, validate, loaded, resume.
        """
        if self._plan.deaf and self._version is not None:
            await asyncio.Event().wait()
        first, right, validated = self._version is None, 0, 0
        self._updating = True
        if not first:
            self._end_wait()
            with self._span("rollout.pause", bucket="overhead"):
                await self._engine.pause()
            await self._scope.aweights_loading()
        with self._span("weights.load", bucket="overhead"):
            await self._engine.load(weights, version=version)
            log_probs = await self._engine.log_probs(probe)
        if validate:
            with self._span("validate", bucket="overhead", after_version=version) as span:
                right, validated = await self._validate(span)
        await self._scope.aweights_loaded(version)
        self._version = version
        acknowledgement = Acknowledgement(
            replica=self._plan.rank,
            version=version,
            busy_seconds=self._engine.busy_seconds - self._busy_before,
            samples=self._samples,
            log_probs=log_probs,
            validated=validated,
            right=right,
        )
        self._busy_before, self._samples = self._engine.busy_seconds, 0
        await self._engine.resume()
        self._updating = False
        self._changed.set()
        if first:
            self._loop = asyncio.create_task(self._generate())
        return acknowledgement

    async def start_profiling(self) -> dict[str, str]:
        """
        Record this replica from now on. Doing it twice is once.
        """
        return await self._scope.astart_profiling()

    async def stop_profiling(self) -> dict[str, str]:
        """
        Stop recording. Doing it twice is once.
        """
        return await self._scope.astop_profiling()

    async def stop(self) -> None:
        """
        Cancel what is in hand and leave the run.
        """
        tasks = [*self._flying, *([self._loop] if self._loop else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._end_wait()
        # An engine that is gone can't stop its profiler.
        await self._scope.ashutdown(timeout=CLOSE_SECONDS)
        await self._engine.close()

    async def check(self) -> None:
        """
        Returns when this replica has no more to generate; raises what went wrong in its generation.
        """
        while self._loop is None:
            await self._changed.wait()
            await asyncio.sleep(0)
        await asyncio.shield(self._loop)

    async def _generate(self) -> None:
        """
        Keep the engine supplied, until the queue is closed.
        """
        while True:
            self._changed.clear()
            if self._error is not None:
                raise self._error
            version, free = self._version or 0, self._plan.in_hand - len(self._flying)
            if self._plan.lockstep and self._flying:
                free = 0
            claim = Claim()
            if free:
                claim = await self._queue.claim(self._plan.rank, version=version, count=free)
            for number in claim.numbers:
                task = asyncio.create_task(self._request(number))
                self._flying.add(task)
                task.add_done_callback(self._finished)
            if claim.closed:
                return
            if claim.numbers:
                self._end_wait()
            else:
                await self._until_changed(claim.wait_for, version=version)

    async def _until_changed(self, wait_for: str, *, version: int) -> None:
        """
        Until a request is done, there are new weights, or there is room in the queue. Idle if nothing is in hand.
        """
        if wait_for and not self._flying and self._wait is None and not self._updating:
            self._wait = self._scope.start_span(
                "rollout.wait", bucket="idle", attributes=None, wait_for=wait_for, request=False
            )
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._changed.wait())]
        if wait_for:
            waits.append(asyncio.ensure_future(self._queue.room(self._plan.rank, version=version)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._flying.discard(task)
        if not task.cancelled():
            # Asked for each time: an error that nobody looked at is logged by asyncio when the task is freed.
            error = task.exception()
            self._error = self._error or error
        self._changed.set()

    async def _request(self, number: int) -> None:
        problem = self._task.problem(number)
        request = Request(
            number=number,
            prompt=problem.prompt,
            count=self._plan.samples,
            seed=int.from_bytes(hashlib.sha256(f"{self._plan.seed} {number}".encode()).digest()[:4]),
            limit=self._task.answer_tokens,
            end=self._task.end,
        )
        # The span holds generation, not the wait for a slot.
        async with self._slots:
            group, stale = await self._generated(request, problem)
        self._samples += len(group.samples)
        if stale:
            await self._queue.discard(number, replica=self._plan.rank, samples=len(group.samples))
        else:
            await self._queue.put(group)

    async def _generated(self, request: Request, problem: Any) -> tuple[Group, bool]:
        """
        The samples of ``request``, and whether they have become too stale meanwhile.
        """
        span = self._scope.start_span(
            "rollout.generate",
            bucket="productive",
            attributes={"rl.samples": request.count, "rl.sample.id": str(request.number)},
            wait_for=None,
            request=True,
        )
        try:
            answers = await self._engine.generate(replace(request, carrier=span.carrier()))
            span.set("rl.completion.versions", [ranges(answer.versions) for answer in answers])
            tokens = sum(len(answer.tokens) for answer in answers)
            span.set("rl.tokens", tokens)
            span.set("rl.work", float(tokens))
            group = self._group(request.number, problem, answers, span)
            stale = (self._version or 0) - group.oldest > self._plan.staleness
            if stale:
                span.set("rl.bucket", "wasted")
        except BaseException:
            span.set("rl.bucket", "wasted")
            raise
        finally:
            span.end()
        return group, stale

    def _group(self, number: int, problem: Any, answers: Sequence[Answer], span: Span) -> Group:
        return Group(
            number=number,
            replica=self._plan.rank,
            prompt=problem.prompt,
            samples=tuple(
                Sample(
                    id=f"{number}.{i}",
                    tokens=answer.tokens,
                    log_probs=answer.log_probs,
                    versions=answer.versions,
                    reward=self._task.reward(problem, answer.tokens),
                )
                for i, answer in enumerate(answers)
            ),
            carrier=span.carrier(),
        )

    async def _validate(self, span: Span) -> tuple[int, int]:
        """
        How many of this replica's share of the held-out problems are answered right, and of how many.
        """
        mine = self._task.validation[self._plan.rank :: self._plan.world]
        if not mine:
            return 0, 0
        answers = await self._engine.greedy(
            [problem.prompt for problem in mine], limit=self._task.answer_tokens, end=self._task.end
        )
        right = sum(self._task.reward(problem, answer) for problem, answer in zip(mine, answers, strict=True))
        span.set("rl.samples", len(mine))
        span.set("rl.reward", right / len(mine))
        return int(right), len(mine)

    def _span(self, name: str, *, bucket: str, after_version: int | None = None) -> Any:
        return self._scope.span(name, bucket=bucket, attributes=None, after_version=after_version)

    def _end_wait(self) -> None:
        if self._wait is not None:
            self._wait.end()
            self._wait = None
