"""
The process that a tool records: that it is the one that was meant, when it ends, and what forbids to record it.

Owns a pidfd for each. Nothing here changes the process.
"""

import asyncio
import contextlib
import errno
import os
from pathlib import Path

from stepscope import ids
from stepscope.devices import mine
from stepscope.names import Reason
from stepscope_sidecar.errors import AttachError

CAP_SYS_PTRACE = 19
"""Bit of the capability in ``CapEff`` of /proc/PID/status."""

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")

SCOPES = {
    1: "only a process's ancestors may attach to it",
    2: "only a process with CAP_SYS_PTRACE may attach to another",
    3: "nobody may attach to a process",
}
"""What Yama's ptrace scope says, where it forbids something."""

REMEDY = "give the sidecar CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE), or set kernel.yama.ptrace_scope=0"

GONE_GRACE = 1.0
"""Seconds from a tool's notice that its process is gone to the kernel's: it looks between two samples."""


class Target:
    """
    A process, by a handle that no other process of the same pid can take over. Close it.
    """

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle

    @classmethod
    def open(cls, pid: int, *, start: int) -> "Target":
        """
        The process ``pid`` that began at ``start`` (field 22 of /proc/PID/stat).

        Raises:
            AttachError: it has ended, or its pid is another process's by now.
        """
        try:
            handle = os.pidfd_open(pid)
        except OSError as error:
            why = "there is no such process" if error.errno in {errno.ESRCH, errno.EINVAL} else str(error)
            raise AttachError(f"pid {pid}: {why}", reason=Reason.PROCESS_LOST) from None
        # Looked at after the handle is ours: should the pid have passed on before, this is another start.
        found = ids.process_start(pid)
        if found != start:
            os.close(handle)
            why = f"it began at tick {found}, the one that was meant at {start}: the pid was used again"
            raise AttachError(f"pid {pid}: {why}", reason=Reason.PROCESS_LOST)
        return cls(pid, handle)

    async def end(self) -> None:
        """
        Wait until it has ended.
        """
        # A handle of its own, so that several may wait.
        await _readable(os.dup(self._handle))

    async def ends_soon(self) -> bool:
        """
        Whether it has ended, or does within the time that the kernel may lag behind a tool's notice.
        """
        try:
            await asyncio.wait_for(self.end(), GONE_GRACE)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """
        Let go of the handle.
        """
        os.close(self._handle)


async def over(pid: int) -> None:
    """
    Wait until process ``pid`` has ended; at once where there is none.
    """
    with contextlib.suppress(OSError):
        await _readable(os.pidfd_open(pid))


async def _readable(handle: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(handle, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def devices(pid: int) -> tuple[str, ...]:
    """
    The accelerator that process ``pid`` works on, named as that of a registered process; nothing if it does not show.
    """
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ()
    pairs = (part.partition("=") for part in text.split("\0"))
    return mine({name: value for name, _, value in pairs}, modules={})


def obstacle(pid: int) -> str:
    """
    Why this process may not read the memory of process ``pid``; "" if it may. Asks the kernel, and reads nothing.
    """
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return f"pid {pid}: there is no such process"
    except PermissionError:
        return f"pid {pid}: {_forbidden(pid)}"
    except OSError as error:
        return f"pid {pid}: {error.strerror}"
    return ""


def restriction() -> str:
    """
    What keeps this process from attaching to others of the same user in general; "" if nothing is known to.
    """
    scope = ptrace_scope()
    if scope not in SCOPES or (scope < 3 and may_trace()):
        return ""
    return f"{YAMA} is {scope}: {SCOPES[scope]}; {REMEDY}"


def ptrace_scope() -> int:
    """
    Yama's setting; 0 where there is no Yama.
    """
    try:
        return int(YAMA.read_text())
    except (OSError, ValueError):
        return 0


def may_trace() -> bool:
    """
    Whether this process has CAP_SYS_PTRACE.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    effective = next((line for line in lines if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(effective.split()[1], 16) >> CAP_SYS_PTRACE & 1)


def _forbidden(pid: int) -> str:
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return "there is no such process"
    if owner != os.geteuid() and not may_trace():
        return f"it belongs to user {owner}, and the sidecar runs as user {os.geteuid()} without CAP_SYS_PTRACE"
    return restriction() or f"the kernel forbids to attach to it (a container's policy perhaps); {REMEDY}"
