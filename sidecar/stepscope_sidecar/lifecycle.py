"""
Being the one sidecar of an attempt: lock, folders, what is written down about it, and the STOP file.

Owns files only. The lock is a flock beside the socket, held as long as the process lives: the kernel lets go of it
however the process ends. Its file goes at an orderly end; what a kill left, the next sidecar in the folder removes.
"""

import contextlib
import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from stepscope import files
from stepscope.errors import ConfigurationError
from stepscope.settings import MAX_SOCKET_PATH, Settings

LOG = logging.getLogger(__name__)

STOP_FILE = "STOP"
"""In STEPSCOPE_DIR: stops all recording of the runs in it."""

SIDECAR_FILE = "sidecar.json"
"""In the attempt's folder: where its sidecar listens."""

ATTEMPTS = 6
"""Times that a lock is tried: a starting sidecar that sweeps the folder holds each for some microseconds."""

PAUSE = 0.03
"""Seconds between two tries; all of them take less than a sidecar takes to start."""

FOLDER_MODE = 0o700
"""The folder of the control sockets is for this user alone."""


class Lock:
    """
    Held by the one sidecar of an attempt.
    """

    def __init__(self, handle: int, path: Path) -> None:
        """
        Use :func:`acquire`.
        """
        self._handle = handle
        self._path = path

    def release(self) -> None:
        """
        Remove the socket and the lock's file, and let another sidecar take over.

        Both go while the lock is held: whoever opened the file before finds that its lock is one of a file that is
        gone, and tries again. What is not ours any more (somebody cleared the folder) is left alone.
        """
        if _names(_lock_file(self._path), self._handle):
            self._path.unlink(missing_ok=True)
            _lock_file(self._path).unlink(missing_ok=True)
        os.close(self._handle)


def acquire(path: Path, *, sweep: bool = False) -> Lock | None:
    """
    The lock for the control socket at ``path``, or None if another sidecar holds it.

    Makes the socket's folder, and removes a socket that was left there: whoever holds the lock may. With ``sweep`` the
    folder is for control sockets alone, and what other sidecars left in it when they were killed goes too.

    Raises:
        ConfigurationError: the folder cannot be made, or belongs to somebody else.
    """
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise ConfigurationError(f"socket path {path} is longer than {MAX_SOCKET_PATH} bytes; set STEPSCOPE_SOCKET")
    _own_folder(path.parent)
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE)
        try:
            handle = _locked(_lock_file(path), os.O_CREAT)
        except OSError as error:
            raise ConfigurationError(f"cannot lock {path}: {error.strerror}; set STEPSCOPE_SOCKET") from None
        if handle is not None:
            path.unlink(missing_ok=True)
            if sweep:
                _sweep(path)
            return Lock(handle, path)
    return None


def held(path: Path) -> bool:
    """
    Whether a sidecar holds the lock for the control socket at ``path``.
    """
    try:
        handle = _locked(_lock_file(path))
    except OSError:
        return False
    if handle is None:
        return True
    os.close(handle)
    return False


def _lock_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _locked(file: Path, flags: int = 0) -> int | None:
    """
    A handle that holds the lock of ``file``; None if it is held elsewhere, or was removed meanwhile.
    """
    handle = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _names(file, handle):
            return handle
    except BlockingIOError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _names(file: Path, handle: int) -> bool:
    """
    Whether ``file`` is still the file that ``handle`` was opened on.
    """
    try:
        return os.path.samestat(file.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _sweep(own: Path) -> None:
    """
    Remove what killed sidecars left beside ``own``: sockets whose lock nobody holds, and the locks' files.
    """
    for file in own.parent.glob("*.sock.lock"):
        if file == _lock_file(own):
            continue
        # Whoever starts there at this moment is held up for as long as this takes, and tries again.
        with contextlib.suppress(OSError):
            handle = _locked(file)
            if handle is not None:
                Lock(handle, file.with_suffix("")).release()


def prepare(settings: Settings) -> None:
    """
    Make the attempt's folder.

    Raises:
        ConfigurationError: STEPSCOPE_DIR cannot be written.
    """
    folder = settings.attempt_folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"STEPSCOPE_DIR={folder.parent}: cannot write there ({error.strerror})") from None


def lead(folder: Path) -> None:
    """
    Point ``latest`` to the attempt's ``folder``, now that its sidecar listens: a start that fails takes nothing over.
    """
    try:
        replace_link(folder.parent / "latest", folder.name)
    except OSError as error:
        LOG.warning("latest in %s stays as it was: %s", folder.parent, error.strerror)


def replace_link(link: Path, target: str) -> None:
    """
    Make ``link`` point to ``target``, at no moment missing. A folder of that name is left alone.
    """
    if link.is_dir() and not link.is_symlink():
        return
    new = link.with_name(f".{link.name}-{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


def announce(folder: Path, values: Mapping[str, object]) -> None:
    """
    Write down where this sidecar listens; a reader sees all of it or the former one.
    """
    files.replace(folder / SIDECAR_FILE, f"{json.dumps(dict(values))}\n".encode())


def announced(folder: Path) -> dict[str, object]:
    """
    What the sidecar of the attempt in ``folder`` wrote down, this or a former one; empty if there was none.
    """
    try:
        found = json.loads((folder / SIDECAR_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def former_port(folder: Path, key: str, host: str) -> int:
    """
    The port that the former sidecar listened on at ``host`` for ``key`` of its file, so that peers find us again.
    """
    text = str(announced(folder).get(key, ""))
    before, _, port = text.removeprefix("http://").rpartition(":")
    return int(port) if before.strip("[]") == host and port.isdigit() else 0


def stop_asked(directory: Path, *, since_unix_ns: int) -> bool:
    """
    Whether there is a STOP file that is newer than a person's last order: `profile` overrides an older one.
    """
    with contextlib.suppress(OSError):
        return (directory / STOP_FILE).stat().st_mtime_ns > since_unix_ns
    return False


def tree_bytes(folder: Path) -> int:
    """
    Bytes of all recordings below ``folder``, raw ones and leftovers included; what vanishes meanwhile counts nothing.
    """
    return sum(map(folder_bytes, folder.glob("step-*")))


def folder_bytes(folder: Path) -> int:
    """
    Bytes of all files in ``folder``; what vanishes meanwhile counts nothing.
    """
    total = 0
    for root, _, found in os.walk(folder):
        for name in found:
            with contextlib.suppress(OSError):
                total += Path(root, name).lstat().st_size
    return total


def _own_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise ConfigurationError(f"cannot make {folder}: {error.strerror}; set STEPSCOPE_SOCKET") from None
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid():
        raise ConfigurationError(f"{folder} belongs to user {found.st_uid}; set STEPSCOPE_SOCKET to a path of your own")
    if found.st_mode & 0o022:
        raise ConfigurationError(f"others can write to {folder}; set STEPSCOPE_SOCKET to a folder of your own (0700)")
