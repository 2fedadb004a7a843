"""
A live run looked at by a person: watched in a terminal, and its windows opened in a browser.

The browser is a script that writes down the address that it was told; the page is then fetched as a browser would.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from .attached import ROOT, begin, command, end, hear, one_step, program, row
from .jobs import CLI, eventually
from .place import START_DEADLINE, Place

pytestmark = pytest.mark.usefixtures("step_two", "from_outside")

CTRL_C = b"\x03"

ESCAPES = re.compile(r"\x1b\[[^A-Za-z]*[A-Za-z]")

CURSOR = re.compile(r"\x1b\[\?25([hl])")
"""Show it, or hide it."""

LINES, COLUMNS = 24, 100

TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes standard input the terminal of the session, as of a shell's child, so that Ctrl-C in it is a signal."""


class Terminal:
    """
    A terminal in which a command runs, and what has been shown there so far.
    """

    def __init__(self, arguments: Sequence[str], *, env: dict[str, str]) -> None:
        """
        Start ``stepscope ARGUMENTS``.
        """
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.settings = termios.tcgetattr(self._theirs)
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *CLI, *arguments],
            env={**env, "TERM": "xterm-256color"},
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
            cwd=ROOT,
        )

    def see(self, text: str) -> None:
        """
        Wait until ``text`` is shown that was not shown before; what came up to its end is then seen.
        """
        ends = time.monotonic() + START_DEADLINE
        before = len(self.shown)
        while text not in ESCAPES.sub("", self.shown[before:]):
            assert time.monotonic() < ends, f"{text!r} is not in {self.shown[before:]!r}"
            self._read(ends - time.monotonic())

    def press(self, key: bytes) -> int:
        """
        Press ``key``, and wait for the command's end: its exit code.
        """
        os.write(self._ours, key)
        code = self.process.wait(START_DEADLINE)
        while self._read(0):
            pass
        return code

    def settings_now(self) -> list[object]:
        """
        How the terminal stands now.
        """
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        """
        End what still runs.
        """
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        self.shown += os.read(self._ours, 65536).decode(errors="replace")
        return True


@contextmanager
def terminal(place: Place, *arguments: str) -> Iterator[Terminal]:
    """
    ``stepscope ARGUMENTS`` in a terminal, until the block is left.
    """
    found = Terminal(arguments, env=place.env)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def from_outside(place: Place) -> None:
    """
    The tool is the one that loads nothing into the program, so that its start takes no time.
    """
    place.env["STEPSCOPE_TOOLS"] = "py-spy"


@pytest.fixture
def told(place: Place, tmp_path: Path) -> Path:
    """
    Where the browser of ``place`` writes the address that it is told.
    """
    address, script = tmp_path / "address", tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > "{address}.part" && mv "{address}.part" "{address}"\n')
    script.chmod(0o755)
    place.env["BROWSER"] = str(script)
    return address


def page(url: str) -> str:
    """
    What a browser would be given at ``url``.
    """
    return httpx.get(url, timeout=60, trust_env=False).raise_for_status().text


def test_a_live_run_is_watched_until_ctrl_c(place: Place) -> None:
    """
    A step appears as it begins, and the version that it makes; then the terminal is as it was before.
    """
    with place.sidecar(), program(place, "3") as trainer, terminal(place, "status", "--watch") as watched:
        watched.see("run-a1: running")
        hear(trainer, "registered")
        watched.see("process    trainer 0: before its first step")
        begin(trainer, 1)
        watched.see("process    trainer 0: step 1 (weights v0 in force, makes v1)")
        end(trainer, 1)
        watched.see("version    step 2 (weights v1 in force, makes v2)")
        code = watched.press(CTRL_C)
        cursor = CURSOR.findall(watched.shown)

        assert 0 == code, watched.shown
        assert watched.settings == watched.settings_now()
        assert ["l", "h"] == [cursor[0], cursor[-1]]
        assert "selection  2" in ESCAPES.sub("", watched.shown)
        assert "Traceback" not in watched.shown


def test_a_window_of_a_live_run_is_opened_in_the_browser_and_after_its_end_too(place: Place, told: Path) -> None:
    """
    The browser is told the address of a page that has the window: of the sidecar's own, or served until Ctrl-C.
    """
    with place.sidecar(), program(place, "3") as trainer:
        hear(trainer, "registered")
        one_step(trainer, 1)
        begin(trainer, 2)
        window = row(place, "py-spy", "recording").window
        done = command(place, "open", window[:-1])
        url = told.read_text()

        assert (0, "", f"{url}\n") == (done.returncode, done.stderr, done.stdout)
        assert f"{place.announced()['http']}/windows/{window}" == url
        assert window in page(url)
        end(trainer, 2)

    told.unlink()
    serving = subprocess.Popen(
        [*CLI, "open", window], env=place.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        served = eventually(lambda: told.read_text() if told.exists() else "")
        shown = page(served)
        serving.send_signal(signal.SIGINT)
        _, errors = serving.communicate(timeout=START_DEADLINE)
    finally:
        serving.kill()
        serving.communicate()

    assert url != served
    assert window in shown
    assert 0 == serving.returncode
    assert "Traceback" not in errors
