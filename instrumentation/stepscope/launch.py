"""
Starts a sidecar for a process that finds none.

Owns whether one may be started and how: detached, so that it outlives the process that happened to come first, with
nothing on its command line that differs between processes, and nothing of that process held open. It is a grandchild:
Ray kills the children of a worker that ends. The shell between the two knows with what code it ended, until
:func:`release`. Two that come at the same moment are sorted out by the
sidecars themselves (a lock beside the socket). Leaves waiting for it to :mod:`stepscope.connection`.
"""

import contextlib
import fcntl
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from stepscope import names
from stepscope.output import last_said
from stepscope.settings import Settings

MODULE = "stepscope_sidecar"
"""What is run with ``python -m``."""

LOG = "sidecar.log"
"""Where in the attempt's folder the sidecar's output goes."""

SHELL = "/bin/sh"
BETWEEN = '"$@" & wait "$!"'
"""What the shell does with the command that it is given: it has it for a child, and its code for its own."""

FIRST_FREE = 3
"""The first file descriptor after standard input, output and error."""


def answers(path: Path) -> bool:
    """
    Whether somebody listens on the socket ``path``.
    """
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.setblocking(False)
        probe.connect(str(path))
    except BlockingIOError:
        # It listens, and many are waiting.
        return True
    except OSError:
        return False
    finally:
        probe.close()
    return True


def ensure(settings: Settings, *, module: str = MODULE) -> str:
    """
    Start a sidecar unless one listens already; "" or why there will be none.
    """
    if answers(settings.socket_path):
        return ""
    if settings.socket is not None:
        # A socket that was named is served by somebody else: a container beside this one.
        return ""
    place = _place(module)
    if place is None:
        return f"{module} is not installed; pip install '/path/to/stepscope[sidecar]'"
    try:
        settings.attempt_folder.mkdir(parents=True, exist_ok=True)
        _spawn([sys.executable, "-m", module, "--attended", "no"], _environment(settings, place), settings)
    except OSError as error:
        return f"the sidecar cannot be started: {error}"
    return ""


def reap() -> list[int]:
    """
    Collect each sidecar of ours that has ended, and answer with their exit codes. Touches no child but those.
    """
    codes = []
    for pid in list(_started):
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except OSError:
            _started.discard(pid)
            continue
        if found == pid:
            _started.discard(pid)
            codes.append(os.waitstatus_to_exitcode(status))
    return codes


def failed(settings: Settings) -> str:
    """
    Why the sidecar that was started here could not stay; "" while it runs, or where it found another that serves.
    """
    if not any(reap()):
        return ""
    log = settings.attempt_folder / LOG
    return f"it ended at once: {last_said(log) or 'see'} ({log})"


def release() -> None:
    """
    Whether the sidecar stays is known: the shell between goes, and nobody is its parent any more.
    """
    for pid in list(_started):
        _started.discard(pid)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


_started: set[int] = set()


def _place(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))).parent


def _environment(settings: Settings, place: Path) -> Mapping[str, str]:
    """
    Ours, with the run spelled out, and with the module findable even where this process changed ``sys.path``.
    """
    searched = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    own = str(Path(__file__).resolve().parent.parent)
    return {
        **os.environ,
        names.RUN_ENV: settings.run,
        names.ATTEMPT_ENV: settings.attempt,
        names.DIR: str(settings.directory.absolute()),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*searched, str(place), own])),
    }


def _spawn(command: list[str], environment: Mapping[str, str], settings: Settings) -> None:
    # posix_spawn runs no at-fork handlers and leaves no object behind that would complain of a child still running.
    log = str(settings.attempt_folder / LOG)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    _started.add(
        os.posix_spawn(
            SHELL,
            [SHELL, "-c", BETWEEN, SHELL, *command],
            environment,
            file_actions=[
                *((os.POSIX_SPAWN_CLOSE, number) for number in _inherited()),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    )


def _inherited() -> list[int]:
    """
    What a child would hold open, as Ray's sockets: their other end could not tell that this process is gone.
    """
    found = []
    for number in (int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if number >= FIRST_FREE and not fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                found.append(number)
    return found
