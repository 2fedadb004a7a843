"""
A replica, with an engine and a queue that only write down what is asked of them.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from stepscope_rollouter.queue import SampleQueue
from stepscope_rollouter.samples import Answer, Request
from stepscope_rollouter.worker import Acknowledgement, Plan, Rollouter

PLAN = Plan(
    rank=0,
    world=1,
    total_steps=3,
    resumed_from=None,
    in_hand=2,
    slots=2,
    lockstep=False,
    samples=2,
    staleness=0,
    seed=0,
)


class Span:
    """
    A span that writes down when it ends, and as what.
    """

    def __init__(self, name: str, bucket: str | None, log: list[str], attributes: dict[str, Any]) -> None:
        self.name, self.bucket, self.log, self.attributes = name, bucket, log, attributes

    def set(self, key: str, value: object) -> None:
        if key == "rl.bucket":
            self.bucket = str(value)
        self.attributes[key] = value

    def carrier(self) -> dict[str, str]:
        return {"traceparent": self.name}

    def end(self) -> None:
        self.log.append(f"end {self.name} {self.bucket}")


class Recorder:
    """
    Scope and engine in one: ``log`` is the order in which things happened.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.version = 0
        self.busy_seconds = 0.0
        self.idle = True
        self.held: asyncio.Event | None = None
        self.fails = False
        self.asked: list[Request] = []

    def init(self, **arguments: Any) -> None:
        self.log.append(f"init {arguments['role']} {arguments['param_version']}")

    async def ashutdown(self, *, timeout: float) -> None:
        self.log.append("shutdown")

    def otlp_endpoint(self) -> str:
        return "http://sidecar"

    def inject(self) -> dict[str, str]:
        return {"traceparent": "here"}

    def register_profiler(self, profiler: object) -> None:
        self.log.append(f"register {profiler}")

    async def start(self, *, rank: int, traces: str, carrier: Mapping[str, str]) -> None:
        self.log.append(f"start {rank} {traces} {carrier['traceparent']}")

    async def aweights_loading(self) -> None:
        self.log.append("loading")

    async def aweights_loaded(self, version: int) -> None:
        self.log.append(f"loaded {version}")

    @contextmanager
    def span(self, name: str, *, bucket: str | None, after_version: int | None, **_: Any) -> Iterator[Span]:
        self.log.append(f"{name} {bucket}" + ("" if after_version is None else f" after {after_version}"))
        yield Span(name, bucket, self.log, {})

    def start_span(self, name: str, *, bucket: str | None, wait_for: str | None, **_: Any) -> Span:
        if wait_for:
            self.log.append(f"{name} for {wait_for}")
        return Span(name, bucket, self.log, {})

    async def astart_profiling(self) -> dict[str, str]:
        return {"state": "recording", "reason": "", "window": "w"}

    async def astop_profiling(self) -> dict[str, str]:
        return {"state": "closing", "reason": "", "window": "w"}

    async def generate(self, request: Request) -> tuple[Answer, ...]:
        began = self.version
        self.asked.append(request)
        if self.fails:
            raise RuntimeError("the engine died")
        if self.held is not None:
            await self.held.wait()
        return (Answer(tokens=(1, 2), log_probs=(0.0, 0.0), versions=(began, self.version)),) * request.count

    async def pause(self) -> None:
        self.log.append("pause")

    async def resume(self) -> None:
        self.log.append("resume")

    async def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        self.version = version
        self.log.append(f"load {version}")

    async def greedy(self, prompts: Sequence[Sequence[int]], *, limit: int, end: int) -> list[tuple[int, ...]]:
        return [tuple(prompt) for prompt in prompts]

    async def log_probs(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        return [[0.0] * len(row) for row in rows]

    async def close(self) -> None:
        self.log.append("close")


@dataclass(frozen=True)
class Problem:
    """
    A prompt.
    """

    prompt: tuple[int, ...]


class Task:
    """
    Problems whose right answer is the number 1.
    """

    validation = (Problem((1,)), Problem((2,)), Problem((1,)))
    end = 9
    answer_tokens = 2

    def problem(self, number: int) -> Problem:
        return Problem((number,))

    def reward(self, problem: Problem, tokens: Sequence[int]) -> float:
        return float(tokens[0] == 1)


def drive(body: Callable[[Rollouter, Recorder, SampleQueue], Awaitable[None]]) -> list[str]:
    """
    What happens, in order, when ``body`` drives a replica of a run of three steps of two prompts.
    """

    async def main() -> list[str]:
        recorder = Recorder()
        queue = SampleQueue(per_step=2, steps=3, capacity=2, staleness=0)
        replica = Rollouter(
            PLAN,
            engine=lambda: recorder,
            profiler=lambda _: "the engine's",
            task=Task,
            queue=queue,
            scope=lambda: recorder,
        )
        await replica.start(version=0)
        await body(replica, recorder, queue)
        await replica.stop()
        return recorder.log

    return asyncio.run(asyncio.wait_for(main(), 20))


async def update(replica: Rollouter, version: int, *, validate: bool = False) -> Acknowledgement:
    """
    Update to ``version``.
    """
    return await replica.update(version, {}, probe=[[1, 2]], validate=validate)


def test_an_update_goes_in_the_order_that_windows_rely_on() -> None:
    """
    Pause, loading, load, validate, loaded, resume; the idle wait ends before and begins anew after.
    """
    answers = []

    async def body(replica: Rollouter, recorder: Recorder, queue: SampleQueue) -> None:
        await update(replica, 0)
        await queue.take(1)
        await queue.room(7, version=1)
        while "rollout.wait for weights" not in recorder.log:
            await asyncio.sleep(0)
        recorder.log.append("--")
        answers.append(await update(replica, 1, validate=True))
        recorder.log.append("--")

    log = drive(body)
    first, second = log.index("--"), log.index("--", log.index("--") + 1)

    assert [
        "init rollouter 0",
        "start 0 http://sidecar here",
        "register the engine's",
        "weights.load overhead",
        "load 0",
        "loaded 0",
        "resume",
    ] == log[:7]
    assert [
        "end rollout.wait idle",
        "rollout.pause overhead",
        "pause",
        "loading",
        "weights.load overhead",
        "load 1",
        "validate overhead after 1",
        "loaded 1",
        "resume",
    ] == log[first + 1 : second]
    assert ["shutdown", "close"] == log[-2:]
    assert (3, 2, 4) == (answers[0].validated, answers[0].right, answers[0].samples)


def test_a_request_that_became_too_stale_is_wasted_and_not_handed_over() -> None:
    """
    Its span says so, and the queue counts its samples.
    """
    dropped = []

    async def body(replica: Rollouter, recorder: Recorder, queue: SampleQueue) -> None:
        recorder.held = asyncio.Event()
        await update(replica, 0)
        for _ in range(20):
            await asyncio.sleep(0)
        await update(replica, 1)
        recorder.held.set()
        recorder.held = None
        dropped.append((await queue.take(2)).dropped)

    log = drive(body)

    assert 2 == log.count("end rollout.generate wasted")
    assert [4] == dropped


def test_what_is_cancelled_at_the_end_is_wasted() -> None:
    """
    Stopping does not wait for requests in hand.
    """

    async def body(replica: Rollouter, recorder: Recorder, queue: SampleQueue) -> None:
        recorder.held = asyncio.Event()
        await update(replica, 0)
        for _ in range(20):
            await asyncio.sleep(0)

    log = drive(body)

    assert 2 == log.count("end rollout.generate wasted")
    assert ["shutdown", "close"] == log[-2:]


def test_a_failing_engine_is_raised_by_check() -> None:
    """
    Whoever watches the replica hears of it by its own words, and nobody else does, however many requests fail.
    """
    complaints: list[str] = []

    async def body(replica: Rollouter, recorder: Recorder, queue: SampleQueue) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
        recorder.fails = True
        await update(replica, 0)
        with pytest.raises(RuntimeError, match="the engine died"):
            await replica.check()
        assert 2 == len(recorder.asked)

    log = drive(body)
    gc.collect()

    assert ["shutdown", "close"] == log[-2:]
    assert [] == complaints


def test_check_returns_when_there_is_no_more_to_generate() -> None:
    """
    Once the queue is closed.
    """

    async def body(replica: Rollouter, recorder: Recorder, queue: SampleQueue) -> None:
        await update(replica, 0)
        await queue.close()
        await replica.check()

    assert ["shutdown", "close"] == drive(body)[-2:]


def test_a_request_takes_its_span_along_and_brings_versions_back() -> None:
    """
    An engine's own spans lie below ours; ours says which version generated which tokens.
    """
    spans: list[Span] = []
    asked: list[Request] = []

    async def body(replica: Rollouter, recorder: Recorder, queue: SampleQueue) -> None:
        begin = recorder.start_span

        def start_span(name: str, **arguments: Any) -> Span:
            spans.append(begin(name, **arguments))
            return spans[-1]

        recorder.start_span = start_span  # type: ignore[method-assign]
        await update(replica, 0)
        await queue.take(1)
        asked.extend(recorder.asked)

    drive(body)
    generated = [span for span in spans if span.name == "rollout.generate"]

    assert {"traceparent": "rollout.generate"} == asked[0].carrier
    assert ["v0[0:2]", "v0[0:2]"] == generated[0].attributes["rl.completion.versions"]
