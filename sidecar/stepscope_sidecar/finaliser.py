"""
The queue of closed windows: their jobs are done one at a time, in a child process that only gets the CPU nobody wants.

Owns the queue, the child's life and its priority. What the child does is ``finalise``'s; what a result means for the
window is the controller's.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from stepscope.names import Reason
from stepscope.output import last_line
from stepscope_sidecar.answers import Answer, UnansweredError
from stepscope_sidecar.artifacts import InvalidArtifact, away, tree
from stepscope_sidecar.finalise import MAX_CPU_SECONDS, failed
from stepscope_sidecar.jobs import Job, Result, encode

LOG = logging.getLogger(__name__)

NICE = 19
"""The lowest weight among ordinary processes."""

LIGHT = 32 << 20
"""Bytes of a raw recording whose finalising, well under a second of CPU, no step feels at the lowest weight."""

PATIENCE = 60.0
"""Seconds that a heavier one waits for a core that nobody wants; on a busy machine there may never be one."""

TIMEOUT = 3600.0
"""Wall seconds. While training takes every core the child hardly runs, so only a stuck disk should meet this."""

GLANCE = 0.5
"""Seconds between looks at whether training is still going on, while a child stands back."""

AGAIN = (1.0, 10.0)
"""Seconds until a child that was killed from outside, or that there was no room for, is tried again."""

ROOM = (2.0, 8.0, 20.0)
"""Seconds until what found no space on the disk is tried again: what fills it for a moment is often gone by then."""

Runner = Callable[[Job], Awaitable[Result]]
"""Does one job; never raises but when cancelled."""


class Finaliser:
    """
    The queue of closed windows. Use it in the event loop alone.
    """

    def __init__(
        self,
        *,
        done: Callable[[Result], None],
        runner: Runner | None = None,
        training: Callable[[], bool] = lambda: True,
    ) -> None:
        """
        Tell ``done`` of each result, in the event loop; ``runner`` defaults to a child process per job.

        While ``training`` says so, children only get the CPU that nobody else wants; afterwards somebody waits for
        them, and they run as the sidecar does.
        """
        self._done = done
        self._runner = runner or (lambda job: _in_child_while(training, job))
        self._jobs: deque[Job] = deque()
        self._busy = False
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def pending(self) -> int:
        """
        Jobs that are not done, the one being done included.
        """
        return len(self._jobs) + self._busy

    def submit(self, job: Job) -> None:
        """
        Do ``job`` when its turn comes. A job may be submitted again, after a restart for example: it is idempotent.
        """
        self._jobs.append(job)
        self._idle.clear()
        self._more.set()

    async def work(self) -> None:
        """
        Do jobs until cancelled; the child of a job that is cut off is killed, and the job can be done again.
        """
        while True:
            await self._more.wait()
            self._more.clear()
            while self._jobs:
                job = self._jobs.popleft()
                self._busy = True
                try:
                    await self._do(job)
                finally:
                    self._busy = False
            self._idle.set()

    async def _do(self, job: Job) -> None:
        try:
            result = await self._runner(job)
            for pause in ROOM:
                if result.reason != Reason.BUDGET_DISK:
                    break
                LOG.warning("no space to finalise window %s, will try again in %.0f s", job.closed.window, pause)
                await asyncio.sleep(pause)
                again = await self._runner(job)
                result = replace(again, cpu_seconds=result.cpu_seconds + again.cpu_seconds)
            self._done(result)
        except Exception as error:
            # One window must not be what all others, and the sidecar, end of.
            LOG.exception("window %s cannot be finalised", job.closed.window)
            with contextlib.suppress(Exception):
                self._done(failed(job, f"{type(error).__name__}: {error}"))

    async def drained(self) -> None:
        """
        Wait until nothing is pending.
        """
        await self._idle.wait()


async def in_child(job: Job, *, stand_back: bool = True, only_idle: bool = True) -> Result:
    """
    Do ``job`` in a process of its own, and wait for it.

    With ``stand_back`` it gives way to all others, with ``only_idle`` too it runs only when no other wants the CPU.
    """
    why = ""
    for pause in (*AGAIN, 0.0):
        try:
            return await _once(job, stand_back=stand_back, only_idle=only_idle)
        except OSError as error:
            why = f"no finalising process: {error}"
        await asyncio.sleep(pause)
    return failed(job, why)


async def _once(job: Job, *, stand_back: bool, only_idle: bool) -> Result:
    with Answer() as answer:
        try:
            return await _answered(answer, job, stand_back=stand_back, only_idle=only_idle)
        except (UnansweredError, TypeError) as error:
            # A TypeError: the object is no result.
            return failed(job, str(error))


async def _answered(answer: Answer, job: Job, *, stand_back: bool, only_idle: bool) -> Result:
    # A session of its own: Ctrl-C in the user's terminal is not meant for it.
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stepscope_sidecar.finalise",
        str(answer.descriptor),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(answer.descriptor,),
        start_new_session=True,
    )
    if stand_back:
        _stand_back(child.pid)
        if only_idle:
            _only_when_idle(child.pid)
    try:
        async with asyncio.timeout(TIMEOUT):
            _, complaint = await child.communicate(encode(job))
    except TimeoutError:
        return failed(job, f"took longer than {TIMEOUT:.0f} s")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == -signal.SIGKILL:
        raise ChildProcessError("it was killed, for want of memory perhaps")
    if child.returncode:
        return failed(job, _last_words(child.returncode, complaint))
    return Result(**answer.read())


async def _in_child_while(training: Callable[[], bool], job: Job) -> Result:
    """
    Do ``job`` in a child that stands back while there is training, and no longer.
    """
    # On a thread: what is still to be fetched lies on another file system, which may not answer.
    heavy = await asyncio.to_thread(_raw_bytes, job) > LIGHT
    clock = asyncio.get_running_loop().time
    patient_until = clock() + PATIENCE
    for only_idle in (True, False) if heavy else (False,):
        if not training():
            break
        child = asyncio.create_task(in_child(job, only_idle=only_idle))
        try:
            while training() and not (only_idle and clock() > patient_until):
                if (await asyncio.wait({child}, timeout=GLANCE))[0]:
                    return child.result()
        finally:
            # Only a privileged process may take a low priority back; beginning again costs seconds.
            child.cancel()
            await asyncio.wait({child})
    return await in_child(job, stand_back=False)


def _raw_bytes(job: Job) -> int:
    beyond = away.size(job.folder)
    try:
        return beyond + sum(file.stat().st_size for file in tree.files(tree.raw(job.folder, job.closed.artifact)))
    except (OSError, InvalidArtifact):
        return beyond


def _stand_back(pid: int) -> None:
    """
    Give process ``pid`` the lowest weight, where the kernel permits it.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, NICE)
    # Where the kernel groups processes by session, priorities count only within a session; this lowers its group.
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(NICE))


def _only_when_idle(pid: int) -> None:
    """
    Let process ``pid`` run only when nobody else wants the CPU, where the kernel permits it.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def _last_words(code: int, complaint: bytes) -> str:
    if code == -signal.SIGXCPU:
        return f"needed more than {MAX_CPU_SECONDS} s of CPU"
    said = last_line(complaint.decode(errors="replace"))
    return f"the finalising process ended with {code}: {said or 'no message'}"
