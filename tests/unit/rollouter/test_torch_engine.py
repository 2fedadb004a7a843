"""
The embedded engine.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
import torch

from stepscope_rollouter.engines.torch import TorchEngine
from stepscope_rollouter.samples import Answer, Request
from stepscope_trainer import grpo
from stepscope_trainer.model import build

T = TypeVar("T")
END = 12


def request(number: int, *, limit: int = 6) -> Request:
    """
    Four answers to a prompt of three tokens.
    """
    return Request(number=number, prompt=(number % 9, 10, 11), count=4, seed=number, limit=limit, end=END)


def run(body: Coroutine[Any, Any, T]) -> T:
    """
    Run ``body``, which must not wait for ever.
    """
    return asyncio.run(asyncio.wait_for(body, 60))


def check_log_probs(engine_answers: tuple[Answer, ...], prompt: tuple[int, ...], models: dict[int, Any]) -> None:
    """
    Each token's log-prob is that of the model of the version that it says it was drawn under.
    """
    for answer in engine_answers:
        tokens = torch.tensor([[*prompt, *answer.tokens]])
        for place, (found, version) in enumerate(zip(answer.log_probs, answer.versions, strict=True)):
            with torch.no_grad():
                expected = grpo.log_probs(models[version], tokens)[0, len(prompt) + place]
            assert float(expected) == pytest.approx(found, abs=1e-5)


def test_answers_say_how_likely_they_were() -> None:
    """
    The log-probs of what was sampled are the trainer's, and an answer ends with its end token or at the limit.
    """
    model = build(seed=3)

    async def body() -> list[tuple[Answer, ...]]:
        engine = TorchEngine(build(seed=3), slots=2)
        try:
            return await asyncio.gather(*(engine.generate(request(number)) for number in range(5)))
        finally:
            await engine.close()

    for number, answers in enumerate(run(body())):
        assert 4 == len(answers)
        check_log_probs(answers, request(number).prompt, {0: model})
        for answer in answers:
            assert END not in answer.tokens[:-1]
            assert answer.tokens[-1] == END or len(answer.tokens) == 6


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_samples_depend_on_the_request_alone(slots: int) -> None:
    """
    Not on who shares the batch.
    """

    async def body(slots: int, numbers: range) -> dict[int, tuple[Answer, ...]]:
        engine = TorchEngine(build(seed=3), slots=slots)
        try:
            found = await asyncio.gather(*(engine.generate(request(number)) for number in numbers))
            return dict(zip(numbers, found, strict=True))
        finally:
            await engine.close()

    together, alone = run(body(slots, range(5))), run(body(1, range(3, 4)))

    assert [answer.tokens for answer in alone[3]] == [answer.tokens for answer in together[3]]


def test_a_request_lives_across_an_update() -> None:
    """
    Paused, it stays; resumed, it goes on with the new weights, and each token knows its version.
    """

    async def body() -> tuple[bool, bool, tuple[Answer, ...]]:
        engine = TorchEngine(build(seed=3), slots=1)
        try:
            task = asyncio.create_task(engine.generate(request(1)))
            while engine.busy_seconds == 0:
                await asyncio.sleep(0)
            await engine.pause()
            for _ in range(20):
                await asyncio.sleep(0)
            kept = not task.done() and not engine.idle
            await engine.load(build(seed=4).state_dict(), version=7)
            await engine.resume()
            answers = await task
            return kept, engine.idle, answers
        finally:
            await engine.close()

    kept, idle, answers = run(body())
    versions = {version for answer in answers for version in answer.versions}

    assert kept
    assert idle
    assert {0, 7} == versions
    check_log_probs(answers, request(1).prompt, {0: build(seed=3), 7: build(seed=4)})


def test_after_a_load_log_probs_are_the_trainers() -> None:
    """
    For rows of any length, to the precision of float32.
    """
    trained = build(seed=9)
    rows = [[1, 2, 3, 4], [5, 6]]

    async def body() -> list[list[float]]:
        engine = TorchEngine(build(seed=0), slots=1)
        await engine.load(trained.state_dict(), version=1)
        return await engine.log_probs(rows)

    for row, found in zip(rows, run(body()), strict=True):
        with torch.no_grad():
            expected = grpo.log_probs(trained, torch.tensor([row]))[0].tolist()
        assert expected == pytest.approx(found, abs=1e-5)


def test_greedy_answers_take_the_likeliest_token() -> None:
    """
    Also while paused.
    """
    model = build(seed=3)

    async def body() -> list[tuple[int, ...]]:
        engine = TorchEngine(build(seed=3), slots=1)
        await engine.pause()
        return await engine.greedy([(1, 2), (3, 4, 5)], limit=3, end=END)

    for prompt, answer in zip([[1, 2], [3, 4, 5]], run(body()), strict=True):
        row = list(prompt)
        for token in answer:
            assert int(model(torch.tensor([row]))[0, -1].argmax()) == token
            row.append(token)


def test_a_cancelled_request_leaves_and_a_broken_model_is_heard_of() -> None:
    """
    Nobody waits for ever: not who comes after, and not who asked a model that fails.
    """

    class Broken(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("out of memory")

    async def body() -> int:
        engine = TorchEngine(build(seed=3), slots=1)
        await engine.pause()
        first = asyncio.create_task(engine.generate(request(0)))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await engine.resume()
        answers = await engine.generate(request(1))
        await engine.close()
        broken = TorchEngine(Broken(), slots=1)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="out of memory"):
                await broken.generate(request(0))
        await broken.close()
        return len(answers)

    assert 4 == run(body())
