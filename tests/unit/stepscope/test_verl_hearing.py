"""
The first samples of an agent loop, which may begin before the trainer's word of the version has come.
"""

import asyncio

import pytest

from stepscope.integrations.verl import samples


def test_the_first_samples_wait_for_the_trainers_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    All that began before it are of the version that it tells.
    """
    known = samples.Known()
    monkeypatch.setattr(samples, "known", known)

    async def told() -> list[int | None]:
        waiting = [asyncio.create_task(samples.heard()) for _ in range(2)]
        await asyncio.sleep(0)
        samples.hear(object(), 4)
        return list(await asyncio.gather(*waiting))

    assert [4, 4] == asyncio.run(told())
    assert known.deaf is False


def test_where_nobody_tells_it_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And not for each sample.
    """
    known, looks = samples.Known(), []
    monkeypatch.setattr(samples, "known", known)

    async def look(_: float) -> None:
        looks.append(1)

    async def told() -> list[int | None]:
        return [await samples.heard(), await samples.heard()]

    monkeypatch.setattr("stepscope.integrations.verl.samples.asyncio.sleep", look)

    assert [None, None] == asyncio.run(told())
    assert samples.HEARINGS == len(looks)
