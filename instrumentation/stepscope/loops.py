"""
Has a coroutine run by the event loop that it belongs to, from a plain call or on another loop.

Owns when that can be waited for: not on the loop's own thread, and not while the loop stands still.
"""

import asyncio
import concurrent.futures
import time
from collections.abc import Coroutine
from typing import Any

INTERVAL = 0.5
"""Seconds between two looks at whether the loop still runs: one that was stopped meanwhile never says so."""


def waits(loop: asyncio.AbstractEventLoop) -> bool:
    """
    Whether this thread can wait for what ``loop`` does: it runs, on another one.
    """
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        return loop.is_running()
    return here is not loop and loop.is_running()


def see_through(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, *, timeout: float) -> bool:
    """
    Have ``loop`` run ``coroutine``, and wait for that where it can be waited for, for ``timeout`` seconds. Whether it
    was handed over: a loop that is closed takes nothing.
    """
    try:
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    except RuntimeError:
        coroutine.close()
        return False
    deadline = time.monotonic() + timeout
    while waits(loop) and (left := deadline - time.monotonic()) > 0:
        # What it raises is its own affair.
        if concurrent.futures.wait([future], min(INTERVAL, left)).done:
            break
    return True


async def within(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, *, timeout: float) -> None:
    """
    Await ``coroutine`` on ``loop``, for ``timeout`` seconds where that is another one; here where it does not run.
    """
    if not waits(loop):
        await coroutine
        return
    future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))
    # Not its result: a cancellation over there is none of this task.
    await asyncio.wait([future], timeout=timeout)
