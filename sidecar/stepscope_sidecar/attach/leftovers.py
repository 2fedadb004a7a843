"""
What a tool leaves in a window's folder besides its recording: that it runs, and the record of what it recorded.

Owns the files. A sidecar that takes over from one that was killed ends the tools that were started by that.
"""

import contextlib
import logging
import os
import signal
from pathlib import Path

import orjson

from stepscope import ids, wire
from stepscope_sidecar.surroundings import alive

LOG = logging.getLogger(__name__)

NAME = "tool.json"
"""The file in a window's folder while a tool runs."""


def note(folder: Path, pid: int) -> None:
    """
    A tool runs as process ``pid``, the leader of its group, and writes into ``folder``.
    """
    _write(folder / NAME, orjson.dumps({"pid": pid, "process_start": ids.process_start(pid)}))


def forget(folder: Path) -> None:
    """
    It has ended.
    """
    with contextlib.suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)


def keep(folder: Path, record: wire.Closed) -> None:
    """
    Write the close record, for a sidecar that takes over; that of the process itself, if any, knows less.
    """
    _write(folder / wire.RECORD, wire.encode(record))


def sweep(attempt: Path) -> int:
    """
    Kill the tools that still run for windows of ``attempt``, whose sidecar is gone; how many did.
    """
    killed = 0
    for path in sorted(attempt.glob(f"step-*/*/*/{NAME}")):
        try:
            found = orjson.loads(path.read_bytes())
            pid, start = int(found["pid"]), int(found["process_start"])
        except (OSError, ValueError, KeyError, TypeError):
            pid, start = 0, 0
        if start and alive(pid, start):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
                LOG.warning("killed pid %d, a tool of %s whose sidecar is gone", pid, path.parent)
        forget(path.parent)
    return killed


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        LOG.warning("%s cannot be written: %s", path, error)
