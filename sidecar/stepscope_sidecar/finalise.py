"""
Makes the final artifact of one closed window. ``python -m stepscope_sidecar.finalise`` is the child process that does
it: one job as JSON on stdin, its result as JSON in the descriptor that it is started with the number of.

Owns the child's own bounds and what a failure is called. What is done with a recording is in ``artifacts``; when a
child runs, and at what priority, is ``finaliser``'s.
"""

import contextlib
import ctypes
import errno
import fcntl
import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from stepscope.codec import encodable
from stepscope.names import Reason
from stepscope_sidecar import answers, artifacts
from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.jobs import Job, Result, decode

MAX_CPU_SECONDS = 600
"""A recording at the default cap of 2 GiB takes 45 s of CPU, one in an unusual layout five times that."""

MAX_MEMORY = 1 << 30
"""Address space of the child in bytes: about three times what a 200 MB recording takes (60 MB of it resident)."""

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl, which Python does not offer."""

DETAIL = 300
"""Characters of a failure's detail that are kept."""


def finalise(job: Job) -> Result:
    """
    Do ``job`` here and now. Whatever the recording looks like, the answer is a result.
    """
    closed = job.closed
    if not closed.artifact or not job.folder.is_dir():
        return failed(job, "nothing was recorded", reason=Reason.NO_ARTIFACT)
    try:
        with _alone_in(job.folder):
            artifact = artifacts.handler(job.tool)(job)
    except FileNotFoundError as error:
        why = str(error) if error.filename is None else f"no {closed.artifact} in the window's folder"
        return failed(job, why, reason=Reason.NO_ARTIFACT)
    except InvalidArtifact as error:
        return failed(job, str(error))
    except MemoryError:
        return failed(job, f"needed more than {MAX_MEMORY} bytes of memory")
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        return failed(job, str(error), reason=Reason.BUDGET_DISK if full else Reason.ARTIFACT_INVALID)
    verdict = artifact.verdict
    if closed.incomplete:
        # What the process knows is why the window is short; what the recording lacks may follow from it.
        verdict = replace(verdict, complete=False, reason=closed.incomplete, share=None)
    return Result(
        window=closed.window,
        artifact=str(artifact.path),
        bytes=artifact.bytes,
        sha256=artifact.sha256,
        complete=verdict.complete,
        incomplete_reason=verdict.reason,
        incomplete_share=verdict.share,
        detail=encodable(verdict.detail)[:DETAIL],
        events=artifact.events,
        first_unix_ns=artifact.first_unix_ns,
        last_unix_ns=artifact.last_unix_ns,
    )


def failed(job: Job, detail: str, *, reason: Reason = Reason.ARTIFACT_INVALID) -> Result:
    """
    The result of a job that came to nothing.
    """
    return Result(window=job.closed.window, reason=reason, detail=encodable(detail)[:DETAIL])


def main(arguments: Sequence[str]) -> int:
    """
    The child, ``DESCRIPTOR``: bound itself, do the job on stdin, answer with the result.
    """
    end_with(os.getppid())
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    # Parsed events have no cycles; looking for some took a fifth of the time.
    gc.disable()
    result = finalise(decode(sys.stdin.buffer.read()))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told = {**asdict(result), "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_memory": _peak_memory()}
    answers.give(int(arguments[0]), told)
    return 0


def end_with(parent: int) -> None:
    """
    Be killed when ``parent`` ends: a restarted sidecar's child would have to wait for one that hardly runs.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


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
    raise SystemExit(main(sys.argv[1:]))
