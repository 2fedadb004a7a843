"""
What recordings hold, for pages: read one at a time in child processes, and kept for whoever looks again.

A page never waits: it is told what is known, and looks again. Timelines to be downloaded are made while somebody waits
for them, and never kept. Owns the children, how many there are, and how long they may take.
"""

import asyncio
import subprocess
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stepscope_sidecar.answers import Answer, UnansweredError
from stepscope_sidecar.rows import WindowRow

KEPT = 64
"""Digests that are kept: some ten kB each, and a person looks at a few windows at a time."""

WAITING = 16
"""Windows that may wait to be read: a step has about as many. More are asked for again when a page looks again."""

MERGING = 2
"""Timelines that may be made or wait at a time."""

SECONDS = 600.0
"""That one child may take: it runs beside training, with the lowest weight."""

Digest = Mapping[str, Any]
Runner = Callable[..., Awaitable[Digest]]
"""Runs the child with these arguments; never raises but when cancelled."""

Key = tuple[str, str, str]
"""A window, its state and the hash of its recording: what it holds changes with these."""


class BusyError(Exception):
    """
    So many are being made that this one is not begun.
    """


class Digests:
    """
    The digests of one attempt's windows. Use it in the event loop alone.
    """

    def __init__(self, store: Path, *, runner: "Runner | None" = None) -> None:
        """
        Read the windows of ``store``; ``runner`` defaults to a child process each.
        """
        self._store = str(store)
        self._run = runner or in_child
        self._kept: OrderedDict[Key, Digest] = OrderedDict()
        self._wanted: OrderedDict[Key, None] = OrderedDict()
        self._work: asyncio.Task[None] | None = None
        self._turn: asyncio.Lock | None = None
        self._merging = 0

    def get(self, row: WindowRow) -> Digest | None:
        """
        What the recording of ``row`` holds, or None: it is being read, or has to wait.
        """
        key = (row.window, str(row.state), row.sha256)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._wanted and len(self._wanted) < WAITING:
            self._wanted[key] = None
        if self._wanted and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._read(), name="digests")
        return None

    async def _read(self) -> None:
        while self._wanted:
            key = next(iter(self._wanted))
            try:
                async with self._alone():
                    self._kept[key] = await self._run("show", self._store, key[0])
            finally:
                self._wanted.pop(key, None)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    async def merge(self, step: int, target: Path) -> Digest:
        """
        Make the timeline of ``step`` at ``target``; the answer has ``error`` where it could not be made.

        Raises:
            BusyError: others are being made.
        """
        if self._merging >= MERGING:
            raise BusyError
        self._merging += 1
        try:
            async with self._alone():
                return await self._run("merge", self._store, str(step), str(target))
        finally:
            self._merging -= 1

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """
        One child at a time: each may take a gigabyte.
        """
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            yield


async def in_child(*arguments: str) -> Digest:
    """
    What ``digest`` answers to ``arguments``, in a process of its own.
    """
    try:
        with Answer() as answer:
            return await _answered(answer, *arguments)
    except (OSError, UnansweredError) as error:
        return {"error": f"it cannot be read: {error}"}


async def _answered(answer: Answer, *arguments: str) -> Digest:
    # asyncio's own processes never come back where they are cancelled at once. A session of its own: Ctrl-C in the
    # user's terminal is not meant for it.
    child = subprocess.Popen(
        [sys.executable, "-m", "stepscope_sidecar.digest", str(answer.descriptor), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(answer.descriptor,),
        start_new_session=True,
    )
    try:
        await asyncio.to_thread(child.wait, SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"reading took longer than {SECONDS:g} s"}
    finally:
        if child.poll() is None:
            # Which ends the thread that waits for it, too.
            child.kill()
            child.wait()
    if child.returncode:
        return {"error": f"the process that reads ended with {child.returncode}, for want of memory or time perhaps"}
    return answer.read()
