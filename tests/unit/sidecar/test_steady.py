"""
What is done again and again, and may fail.
"""

import asyncio
import logging
from collections.abc import Callable

import pytest

from stepscope_sidecar.steady import Steady


class Flaky:
    """
    What fails the first ``times``.
    """

    def __init__(self, times: int) -> None:
        """
        Not done yet.
        """
        self.times = times
        self.done = 0

    def look(self) -> str:
        """
        Fail, or say that it went well.
        """
        self.done += 1
        if self.done <= self.times:
            raise ValueError(f"time {self.done}")
        return "well"

    async def alook(self) -> str:
        """
        The same, to be waited for.
        """
        return self.look()


@pytest.mark.parametrize("how", ["do", "wait", "aside"])
def test_what_fails_is_complained_of_once_and_done_again(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    Until it has gone well: what fails then is told of anew, and others have complaints of their own.
    """
    flaky, answers = Flaky(2), list[object]()

    async def rounds() -> None:
        steady = Steady()
        ways: dict[str, Callable[[], object]] = {
            "do": lambda: steady.do(flaky.look),
            "wait": lambda: steady.wait(flaky.alook),
            "aside": lambda: steady.aside(flaky.look),
        }
        for times in (2, 2, 2, 4, 4):
            flaky.times = times
            found = ways[how]()
            answers.append(await found if asyncio.iscoroutine(found) else found)

    with caplog.at_level(logging.ERROR):
        asyncio.run(rounds())
    well = "well" if how != "do" else None

    assert 5 == flaky.done
    assert [None, None, well, None, well] == answers
    assert ["time 1", "time 4"] == [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert all("Flaky." in record.getMessage() for record in caplog.records)


def test_a_task_that_is_cancelled_ends() -> None:
    """
    That is no failure.
    """

    async def body() -> None:
        steady = Steady()
        task = asyncio.create_task(steady.wait(asyncio.Event().wait))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(body())
