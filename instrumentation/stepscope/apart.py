"""
Runs a coroutine to its end where nobody can await it: in a plain boundary call, or as a process leaves.

The loop it runs on is made for it and closed after it; the caller's own loop, running or not, is never touched.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """
    What ``coroutine`` returns or raises. Blocks this thread; one that runs an event loop waits for another thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _here(coroutine)
    outcome: list[T | BaseException] = []

    def work() -> None:
        try:
            outcome.append(_here(coroutine))
        except BaseException as error:  # noqa: BLE001 - raised again on the thread that waits
            outcome.append(error)

    thread = threading.Thread(target=work, name="stepscope-apart", daemon=True)
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def leave(coroutine: Coroutine[Any, Any, object]) -> None:
    """
    See ``coroutine`` through on a thread of its own, which the process does not wait for. It must not raise.
    """
    try:
        threading.Thread(target=_here, args=(coroutine,), name="stepscope-apart", daemon=True).start()
    except RuntimeError:
        # The process ends and starts no thread any more.
        coroutine.close()


def _here(coroutine: Coroutine[Any, Any, T]) -> T:
    # Not asyncio.run: that takes the thread's current loop away, which the program may be using.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        try:
            _cut_off(loop)
        finally:
            # Its threads are not waited for: one may be looking up a name for minutes, after the deadline of whoever
            # asked, and a process that ends starts none any more that could wait.
            loop.close()


def _cut_off(loop: asyncio.AbstractEventLoop) -> None:
    """
    Cancel what the coroutine has left running, so that it learns that its loop ends.
    """
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
