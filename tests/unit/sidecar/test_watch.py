"""
A run that is watched: what is shown of it, when, and how that ends.
"""

import contextlib
import io
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stepscope_sidecar import glance, watch
from stepscope_sidecar.store import Store
from tests.integration.jobs import CLI, environment
from tests.unit.sidecar.stored import WAIT

LIVE: dict[str, Any] = {
    "live": True,
    "param_version": 3,
    "selection": "3,10-12",
    "windows": {"denied": 1, "ready": 2},
    "processes": [
        {"role": "trainer", "rank": 0, "pid": 7, "alive": True, "connected": True, "step": 4},
        {"role": "rollouter", "rank": 1, "pid": 8, "alive": False, "step": 4},
    ],
    "overhead_estimates": {
        "trainer": {"ratio": 0.0312, "why": ""},
        "rollouter": {"ratio": None, "unknown": "1 unprofiled step, 3 are needed"},
    },
    "warnings": ["an older one", "the steps file cannot be read"],
}

HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
"""The terminal's cursor."""

DEMANDS = "its sidecar demands its token: set STEPSCOPE_TOKEN_FILE to the file that holds it"

GONE = {"live": False, "param_version": 3, "selection": "3,10-12", "windows": {"ready": 3}}


AS_IN_A_SHELL = ("env", "--default-signal=HUP,INT,TERM")
"""Whoever runs the tests may do so under nohup, which has it ignore the loss of its terminal, and all below it."""


def read(terminal: int) -> bytes:
    """
    What is shown next.
    """
    assert select.select([terminal], [], [], WAIT)[0], "nothing more is shown"
    return os.read(terminal, 4096)


def looks(*found: dict[str, Any]) -> tuple[Callable[[], dict[str, Any]], Callable[[float], bool]]:
    """
    A look and a pause that go through ``found``, and then it is over.
    """
    left = list(found)
    return lambda: left.pop(0), lambda _: not left


def watched(console: Console, *found: dict[str, Any]) -> str:
    """
    What is written while ``found`` is seen.
    """
    look, pause = looks(*found)
    watch.watch(look, name="r-1", console=console, pause=pause, now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_that_a_person_watches_is_there() -> None:
    """
    An overhead that is not known says why, of errors the last is shown.
    """
    assert [
        "r-1: running",
        "version    step 4 (weights v3 in force, makes v4)",
        "selection  3,10-12",
        "windows    2 ready, 1 denied",
        "process    trainer 0: step 4 (weights v3 in force, makes v4)",
        "process    rollouter 1: ended",
        "overhead   trainer: 3.1%",
        "overhead   rollouter: unknown: 1 unprofiled step, 3 are needed",
        "last error the steps file cannot be read (and 1 before it)",
    ] == glance.lines(LIVE, name="r-1", brief=True)


@pytest.mark.parametrize(
    ("found", "was_live", "state"),
    [
        (GONE, True, "its sidecar has gone; this is from its store"),
        (GONE, False, "no sidecar answers; this is from its store"),
        ({**GONE, "live": True, "demands_token": True}, False, f"running; {DEMANDS} (this is from its store)"),
    ],
)
def test_it_says_when_the_sidecar_is_not_there(found: dict[str, Any], was_live: bool, state: str) -> None:
    """
    One that has gone is told from one that was never seen.
    """
    assert f"r-1: {state}" == glance.lines(found, name="r-1", was_live=was_live)[0]


OPEN = {
    "node": "n2",
    "step": 5,
    "last_step": 6,
    "role": "trainer",
    "rank": 3,
    "pid": 42,
    "tool": "torch",
    "state": "recording",
    "age_seconds": 700.0,
}


def test_a_window_that_is_open_is_named_with_its_process_and_age() -> None:
    """
    The pid is what a debugger wants; one that is about to open or close says so.
    """
    told = glance.lines({**LIVE, "open": [OPEN, {**OPEN, "state": "opening", "age_seconds": None}]}, name="r-1")

    assert "open       trainer 3 (pid 42) on n2: step 5-6, torch for 700.00 s" in told
    assert "open       trainer 3 (pid 42) on n2: step 5-6, torch (opening)" in told


def test_at_length_all_processes_and_warnings_are_there() -> None:
    """
    With pids; what other nodes, copies and ranks lack is told in words, never as an object.
    """
    crowd = [{"role": "r", "rank": rank, "pid": rank + 70, "alive": True, "connected": True} for rank in range(20)]
    more = {
        "http": "http://127.0.0.1:1",
        "missing": {"trainer": ["step 1 rank 1: not_asked"]},
        "attached": [{"pid": 9, "with": "rollouter-0", "tool": "py-spy"}],
        "reports": {"state": "taken", "unsent": 2},
        "artifacts_to_copy": 3,
        "ordered": {"order": "5-6", "reached": ["n2"], "waiting": []},
        "spans_pending": 4,
    }

    told = glance.lines({**LIVE, "processes": crowd, **more}, name="r-1")

    plain = {"r-1:", "version", "selection", "windows", "process", "overhead"}
    assert 20 == len([line for line in told if line.startswith("process ")])
    assert "process    r 19 (pid 89): before its first step" in told
    assert [
        "page       http://127.0.0.1:1",
        "attached   pid 9 with rollouter-0: py-spy",
        "missing    trainer: step 1 rank 1: not_asked",
        "upstream   reports taken, 2 unsent",
        "copies     3 to make",
        "ordered    5-6: obeyed by n2, not heard of by none",
        "spans      4 not forwarded yet",
        "warning    an older one",
        "warning    the steps file cannot be read",
    ] == [line for line in told if line.split()[0] not in plain]
    assert "{" not in "".join(told)


@pytest.mark.parametrize(
    ("alive", "said"),
    [
        ((True, False), "; still alive here: trainer 0 (pid 7)"),
        ((False, False), "; all processes of this node have ended"),
        ((None, False), ""),
    ],
)
def test_without_a_sidecar_it_says_what_is_known_of_the_processes(alive: tuple[bool | None, ...], said: str) -> None:
    """
    Whether the run goes on, a store cannot know; of processes of other nodes nothing is known here.
    """
    processes = [{"role": "trainer", "rank": rank, "pid": 7 + rank, "alive": one} for rank, one in enumerate(alive)]

    assert (
        f"r-1: no sidecar answers; this is from its store{said}"
        == glance.lines({**GONE, "processes": processes}, name="r-1")[0]
    )


def test_an_age_alone_is_no_change() -> None:
    """
    It is another one at each look, and would print a block a second.
    """
    older = {**LIVE, "open": [{**OPEN, "age_seconds": 701.0}]}

    printed = watched(Console(file=io.StringIO()), {**LIVE, "open": [OPEN]}, older)

    assert 1 == printed.count("03:04:05\n")


def test_a_crowd_of_processes_is_cut() -> None:
    """
    What does not fit on a screen is counted.
    """
    one = {"role": "rollouter", "alive": True, "connected": True}
    crowd = [{**one, "rank": rank} for rank in range(glance.MAX_PROCESSES + 3)]

    told = glance.lines({**LIVE, "processes": crowd}, name="r-1", brief=True)

    assert "           and 3 more" in told
    assert "process    rollouter 0: before its first step" in told


def test_without_a_terminal_there_is_a_block_per_change() -> None:
    """
    The same again prints nothing, and nothing printed steers a terminal, whatever other nodes call things.
    """
    hostile = {**LIVE, "warnings": ["\x1b[2Jgone\r"]}

    printed = watched(Console(file=io.StringIO()), LIVE, LIVE, hostile, GONE)

    assert 3 == printed.count("03:04:05\n")
    assert "last error ?[2Jgone?" in printed
    assert "\x1b" not in printed
    assert "its sidecar has gone" in printed


def test_a_terminal_is_drawn_anew_and_a_narrow_one_holds_it() -> None:
    """
    No line is wider than the terminal; what is too long goes on in the next.
    """
    console = Console(file=io.StringIO(), force_terminal=True, width=24, height=60, color_system=None)

    printed = watched(console, LIVE, GONE)

    assert "\x1b[" in printed
    assert [] == [line for line in re.split(r"\x1b\[[^A-Za-z]*[A-Za-z]|[\r\n]", printed) if len(line) > 24]


def interrupted(outcome: str) -> None:
    """
    Ctrl-C comes, and ``outcome`` is what becomes of it.
    """
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        if outcome == "raised":
            raise
        if outcome == "another error":
            raise RuntimeError("release unlocked lock") from None


@pytest.mark.parametrize("outcome", ["raised", "another error", "lost"])
@pytest.mark.parametrize("where", ["look", "pause"])
def test_ctrl_c_ends_it_quietly(where: str, outcome: str) -> None:
    """
    It is how a person ends it, so it is no error, and it does, wherever it comes in between.
    """
    times: list[str] = []

    def come(here: str) -> None:
        times.append(here)
        assert len(times) < 9, "it goes on"
        if here == where:
            interrupted(outcome)

    def look() -> dict[str, Any]:
        come("look")
        return LIVE

    def pause(_: float) -> bool:
        come("pause")
        return False

    before = signal.getsignal(signal.SIGINT)
    watch.watch(look, name="r-1", console=Console(file=io.StringIO()), pause=pause)

    assert (["look"] if where == "look" else ["look", "pause"]) == times
    assert before is signal.getsignal(signal.SIGINT)


def test_an_error_of_the_look_is_one() -> None:
    """
    Where no signal has come.
    """

    def broken() -> dict[str, Any]:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        watch.watch(broken, name="r-1", console=Console(file=io.StringIO()), pause=lambda _: True)


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1)]
)
def test_a_terminal_has_its_cursor_again(tmp_path: Path, number: signal.Signals, expected: int) -> None:
    """
    However the command is ended in a real terminal, once something is shown; Ctrl-C is no error.
    """
    (tmp_path / "r-1").mkdir()
    Store.open(tmp_path / "r-1" / "stepscope.db", run="r", attempt="1").close()
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*AS_IN_A_SHELL, *CLI, "status", "--run", "r-1", "--watch"],
            env=environment(tmp_path),
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        shown = b""
        while b"Ctrl-C ends this" not in shown:
            shown += read(ours)
        process.send_signal(number)
        with contextlib.suppress(OSError):
            # It has an end once nobody writes to it any more.
            while True:
                shown += read(ours)
        code = process.wait(WAIT)
    finally:
        process.kill()
        process.wait()
        os.close(ours)

    assert expected == code
    assert (1, 1) == (shown.count(HIDE), shown.count(SHOW))
    assert b"r-1: no sidecar answers" in shown
    assert b"Traceback" not in shown
