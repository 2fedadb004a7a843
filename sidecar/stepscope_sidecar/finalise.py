"""
Makes final artifacts of closed windows, one at a time, in a child process that only gets the CPU nobody wants.

Owns the queue, the child, its priority and its bounds. What is done with a recording is in ``artifacts``; what a
result means for the window is the controller's. ``python -m stepscope_sidecar.finalise`` is the child: one job as
JSON on stdin, its result as JSON on stdout.
"""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import gc
import os
import resource
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from stepscope import wire
from stepscope.errors import WireError
from stepscope.names import Reason
from stepscope_sidecar.artifacts import kineto
from stepscope_sidecar.artifacts.pieces import InvalidArtifact

NICE = 19
"""The lowest weight among ordinary processes."""

LIGHT = 32 << 20
"""Bytes of a raw recording whose finalising, well under a second of CPU, no step feels at the lowest weight."""

PATIENCE = 60.0
"""Seconds that a heavier one waits for a core that nobody wants; on a busy machine there may never be one."""

MAX_CPU_SECONDS = 600
"""A recording at the default cap of 2 GiB takes 45 s of CPU, one in an unusual layout five times that."""

MAX_MEMORY = 1 << 30
"""Address space of the child in bytes: about three times what a 200 MB recording takes (60 MB of it resident)."""

TIMEOUT = 3600.0
"""Wall seconds. While training takes every core the child hardly runs, so only a stuck disk should meet this."""

GLANCE = 0.5
"""Seconds between looks at whether training is still going on, while a child stands back."""

AGAIN = (1.0, 10.0)
"""Seconds until a child that was killed from outside, or that there was no room for, is tried again."""

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl, which Python does not offer."""

DETAIL = 300
"""Characters of a failure's detail that are kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """
    A closed window: its absolute folder, its close record, its process's pid and, where known, the role's size.
    """

    folder: Path
    closed: wire.Closed
    pid: int
    world_size: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """
    What became of a job. With ``reason`` it failed and what there was is kept; else ``artifact`` (absolute) is final.

    ``cpu_seconds`` and ``peak_memory`` (bytes, resident) are the child's.
    """

    window: str
    artifact: str = ""
    bytes: int = 0
    sha256: str = ""
    complete: bool = False
    incomplete_reason: str = ""
    incomplete_share: float | None = None
    reason: str = ""
    detail: str = ""
    events: int = 0
    first_unix_ns: int = 0
    last_unix_ns: int = 0
    markers_expected: int = 0
    markers_missing: int = 0
    cpu_seconds: float = 0.0
    peak_memory: int = 0

    @property
    def ready(self) -> bool:
        """
        Whether the final artifact is in its place.
        """
        return not self.reason


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
                    result = await self._runner(job)
                finally:
                    self._busy = False
                self._done(result)
            self._idle.set()

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
    return _failed(job, why)


async def _once(job: Job, *, stand_back: bool, only_idle: bool) -> Result:
    # A session of its own: Ctrl-C in the user's terminal is not meant for it.
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stepscope_sidecar.finalise",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    if stand_back:
        _stand_back(child.pid)
        if only_idle:
            _only_when_idle(child.pid)
    try:
        async with asyncio.timeout(TIMEOUT):
            output, complaint = await child.communicate(encode(job))
    except TimeoutError:
        return _failed(job, f"took longer than {TIMEOUT:.0f} s")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == -signal.SIGKILL:
        raise ChildProcessError("it was killed, for want of memory perhaps")
    if child.returncode:
        return _failed(job, _last_words(child.returncode, complaint))
    return Result(**orjson.loads(output))


async def _in_child_while(training: Callable[[], bool], job: Job) -> Result:
    """
    Do ``job`` in a child that stands back while there is training, and no longer.
    """
    heavy = _raw_bytes(job) > LIGHT
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
    try:
        return (job.folder / job.closed.artifact).stat().st_size
    except OSError:
        return 0


def finalise(job: Job) -> Result:
    """
    Do ``job`` here and now. Whatever the recording looks like, the answer is a result.
    """
    closed = job.closed
    if not closed.artifact or not job.folder.is_dir():
        return _failed(job, "nothing was recorded", reason=Reason.NO_ARTIFACT)
    try:
        with _alone_in(job.folder):
            recording = kineto.finalise(job.folder, closed, pid=job.pid, world_size=job.world_size)
    except FileNotFoundError:
        return _failed(job, f"no {closed.artifact} in the window's folder", reason=Reason.NO_ARTIFACT)
    except InvalidArtifact as error:
        return _failed(job, str(error))
    except MemoryError:
        return _failed(job, f"needed more than {MAX_MEMORY} bytes of memory")
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return _failed(job, str(error), reason=Reason.BUDGET_DISK if full else Reason.ARTIFACT_INVALID)
    incomplete = closed.incomplete or recording.incomplete
    return Result(
        window=closed.window,
        artifact=str(recording.path),
        bytes=recording.bytes,
        sha256=recording.sha256,
        complete=not incomplete,
        incomplete_reason=incomplete,
        incomplete_share=recording.share if recording.missing else None,
        events=recording.events,
        first_unix_ns=recording.first_unix_ns,
        last_unix_ns=recording.last_unix_ns,
        markers_expected=recording.expected,
        markers_missing=len(recording.missing),
    )


def encode(job: Job) -> bytes:
    """
    ``job`` as the child reads it.
    """
    told = {"folder": str(job.folder), "closed": wire.encode(job.closed).decode(), "pid": job.pid}
    return orjson.dumps({**told, "world_size": job.world_size})


def decode(data: bytes) -> Job:
    """
    The job in ``data``.

    Raises:
        WireError: it is none.
    """
    try:
        found = orjson.loads(data)
        return Job(
            folder=Path(found["folder"]),
            closed=wire.load_closed(found["closed"].encode()),
            pid=int(found["pid"]),
            world_size=found["world_size"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WireError(f"not a job: {error}") from error


def main() -> int:
    """
    The child: bound itself, do the job on stdin, print the result.
    """
    _end_with(os.getppid())
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    # Parsed events have no cycles; looking for some took a fifth of the time.
    gc.disable()
    result = finalise(decode(sys.stdin.buffer.read()))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told = {**asdict(result), "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_memory": _peak_memory()}
    sys.stdout.buffer.write(orjson.dumps(told))
    return 0


def _end_with(parent: int) -> None:
    """
    Be killed when ``parent`` ends: a restarted sidecar's child would have to wait for one that hardly runs.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


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


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """
    Hold ``folder`` against another finaliser: one whose sidecar was killed may still be at work.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _failed(job: Job, detail: str, *, reason: Reason = Reason.ARTIFACT_INVALID) -> Result:
    return Result(window=job.closed.window, reason=reason, detail=detail[:DETAIL])


def _last_words(code: int, complaint: bytes) -> str:
    if code == -signal.SIGXCPU:
        return f"needed more than {MAX_CPU_SECONDS} s of CPU"
    lines = complaint.decode(errors="replace").strip().splitlines()
    return f"the finalising process ended with {code}: {lines[-1] if lines else 'no message'}"


def _peak_memory() -> int:
    """
    Largest resident memory of this process in bytes; rusage would count what it was forked from.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    raise SystemExit(main())
