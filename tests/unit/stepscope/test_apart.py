"""
Coroutines seen through where nobody can await them.
"""

import asyncio
import subprocess
import sys
import threading

import pytest

from stepscope import apart
from tests.unit.stepscope.fake_sidecar import until


async def _answer() -> int:
    await asyncio.to_thread(lambda: None)
    return 42


async def _fail() -> None:
    raise KeyError("missing")


def test_without_a_loop_it_runs_here() -> None:
    """
    On this thread, and the loop that the thread calls its own stays.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        thread: list[int] = []

        async def here() -> None:
            thread.append(threading.get_ident())

        apart.run(here())

        assert 42 == apart.run(_answer())
        assert [threading.get_ident()] == thread
        assert loop is asyncio.get_event_loop_policy().get_event_loop()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_inside_a_loop_it_runs_elsewhere() -> None:
    """
    A plain call in a coroutine: the loop stands still, and nothing is mixed up.
    """

    async def inside() -> int:
        return apart.run(_answer())

    assert 42 == asyncio.run(inside())


def test_what_it_raises_is_raised() -> None:
    """
    Here, and from inside a loop.
    """

    async def inside() -> None:
        apart.run(_fail())

    with pytest.raises(KeyError, match="missing"):
        apart.run(_fail())
    with pytest.raises(KeyError, match="missing"):
        asyncio.run(inside())


def test_left_alone_it_goes_on() -> None:
    """
    Nobody waits for it.
    """
    done = threading.Event()

    async def work() -> None:
        done.set()

    apart.leave(work())
    until(done.is_set)


def test_a_thread_that_does_not_end_is_not_waited_for() -> None:
    """
    Looking up a name takes what it takes, also when its deadline has passed.
    """
    released, ended = threading.Event(), threading.Event()

    def look_up() -> None:
        released.wait(20.0)
        ended.set()

    async def work() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(look_up), 0.05)
        return 42

    answer, waited = apart.run(work()), ended.is_set()
    released.set()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")])

    assert (42, False) == (answer, waited)


def test_what_is_left_running_is_told_that_its_loop_ends() -> None:
    """
    It may have something to see through elsewhere.
    """
    told: list[str] = []

    async def lasting() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def work() -> None:
        told.append(asyncio.create_task(lasting()).get_name())
        await asyncio.sleep(0)

    apart.run(work())

    assert ["cancelled"] == told[1:]


ENDING = """
import asyncio, atexit
from stepscope import apart

async def nothing():
    pass

async def work():
    try:
        await asyncio.to_thread(int)
    except RuntimeError:
        pass
    return 42

atexit.register(lambda: print(apart.run(work()), flush=True))
atexit.register(lambda: apart.leave(nothing()))
"""


def test_a_process_that_ends_gets_its_answer() -> None:
    """
    It starts no threads any more.
    """
    ended = subprocess.run([sys.executable, "-W", "error", "-c", ENDING], capture_output=True, text=True, timeout=30)

    assert (0, "42\n", "") == (ended.returncode, ended.stdout, ended.stderr)
