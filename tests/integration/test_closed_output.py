"""
Commands whose output nobody reads any more, as of ``stepscope show | head``: they end without a word; with one where it
does not fit.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from stepscope_sidecar.cli import EXIT_UNREAD, EXIT_UNWRITTEN, EXIT_USAGE
from stepscope_sidecar.store import Store
from tests.unit.sidecar.stored import put, window

from .jobs import CLI, environment

PRINTING = (
    "--version",
    "--help",
    "show --help",
    "status",
    "status --json",
    "status --watch",
    "windows",
    "windows --json",
    "spans",
    "spans --json",
    "open w-3 --print",
)

DEADLINE = 120.0
"""Seconds for all of them on a busy machine; each takes one."""


@contextmanager
def unread() -> Iterator[int]:
    """
    The end to write to of a pipe that nobody reads.
    """
    reading, writing = os.pipe()
    os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)


@contextmanager
def full() -> Iterator[int]:
    """
    A file system that has no room.
    """
    writing = os.open("/dev/full", os.O_WRONLY)
    try:
        yield writing
    finally:
        os.close(writing)


def ended(
    directory: Path, *commands: str, output: Callable[[], AbstractContextManager[int]] = unread
) -> Mapping[str, tuple[int, str]]:
    """
    Exit code and standard error of each of ``commands``, run side by side with ``output`` to write to.
    """
    with output() as writing:
        begun = {
            text: subprocess.Popen(
                [*CLI, *text.split()], env=environment(directory), stdout=writing, stderr=subprocess.PIPE, text=True
            )
            for text in commands
        }
        try:
            return {
                text: (process.returncode, errors)
                for text, process in begun.items()
                for _, errors in [process.communicate(timeout=DEADLINE)]
            }
        finally:
            for process in begun.values():
                process.kill()
                process.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """
    The folder of a run that has ended.
    """
    (tmp_path / "r-1").mkdir()
    store = Store.open(tmp_path / "r-1" / "stepscope.db", run="r", attempt="1")
    try:
        put(store, window(3))
    finally:
        store.close()
    (tmp_path / "latest").symlink_to("r-1")
    return tmp_path


def test_a_command_whose_output_does_not_fit_says_so(directory: Path) -> None:
    """
    In one line, with 1, for tables and JSON.
    """
    found = ended(directory, "windows", "spans", "status --json", "status --watch", output=full)

    said = "stepscope: the output cannot be written: No space left on device\n"
    assert dict.fromkeys(found, (EXIT_UNWRITTEN, said)) == found


def test_a_command_whose_reader_has_gone_ends_as_the_signal_would_end_it(directory: Path) -> None:
    """
    128 + SIGPIPE and not a line of error, for tables, JSON, help and what goes on printing; errors stay errors.
    """
    served = "open w-3 --print"
    found = dict(ended(directory, *PRINTING, "windows --run nonesuch"))
    code, errors = found.pop("windows --run nonesuch")
    said = found.pop(served)

    assert 128 + signal.SIGPIPE == EXIT_UNREAD
    assert dict.fromkeys(found, (EXIT_UNREAD, "")) == found
    assert EXIT_USAGE == code
    assert errors.startswith("stepscope: ")
    # What it served was of no use to anybody, and it says what it began.
    assert EXIT_UNREAD == said[0]
    assert "Traceback" not in said[1]


def test_a_run_goes_on_where_nobody_reads_what_is_said_of_it(tmp_path: Path) -> None:
    """
    The exit code is the command's own.
    """
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with unread() as writing:
        done = subprocess.run(
            [*CLI, "run", "--", *command],
            env=environment(tmp_path),
            stdout=writing,
            stderr=writing,
            timeout=DEADLINE,
            check=False,
        )

    assert 3 == done.returncode
