"""
The process of a tool that records from outside, against stand-ins: small Python programs.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from stepscope.names import Reason
from stepscope_sidecar.attach.driver import KEPT_OUTPUT, LEASH, Driver, Script, Turn
from stepscope_sidecar.errors import AttachError
from tests.unit.sidecar.stored import holds

READY = (Turn(until=re.compile("recording")),)

ENDS_ON_SIGINT = """
import signal, sys
print("recording", flush=True)
signal.sigwait([signal.SIGINT])
print("written", flush=True)
"""

DEADLINE = 120.0
"""Seconds for anything that should happen at once, on a busy machine."""


def script(text: str, **changes: object) -> Script:
    """
    The stand-in ``text``, ended by SIGINT unless told otherwise.
    """
    text = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n" + text
    values: dict[str, object] = {"begin": READY, "stop": signal.SIGINT, **changes}
    return Script(command=(sys.executable, "-c", text), **values)  # type: ignore[arg-type]  # named above


def run(work: Callable[[Driver], Awaitable[None]], tool: Script, folder: Path) -> None:
    """
    Do ``work`` with the driver of ``tool``, and leave nothing behind.
    """

    async def whole() -> None:
        driver = await Driver.spawn(tool, cwd=folder)
        try:
            await work(driver)
        finally:
            await driver.close()

    asyncio.run(whole())


def runs(pid: int) -> bool:
    """
    Whether process ``pid`` is there and has not ended.
    """
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_it_records_once_the_tool_says_so_and_ends_at_the_signal(tmp_path: Path) -> None:
    """
    What the tool says last is kept.
    """

    async def work(driver: Driver) -> None:
        await driver.begin(deadline=DEADLINE)
        await driver.stop(deadline=DEADLINE)

        assert "written" == driver.last_words()

    run(work, script(ENDS_ON_SIGINT), tmp_path)


def test_a_tool_that_fails_says_why_in_one_line(tmp_path: Path) -> None:
    """
    The error and what caused it, not the stack.
    """
    text = (
        r"print('Error: no access\n\nCaused by:\n 0: read\n 1: Permission denied (os error 13)\n\n"
        r"Stack backtrace:\n 0: a::b\n'); raise SystemExit(1)"
    )

    async def work(driver: Driver) -> None:
        with pytest.raises(AttachError, match=r"Error: no access \(Permission denied \(os error 13\)\)") as raised:
            await driver.begin(deadline=DEADLINE)

        assert Reason.START_ERROR == raised.value.reason

    run(work, script(text), tmp_path)


def test_a_tool_that_ends_without_a_word_is_an_error_with_its_code(tmp_path: Path) -> None:
    """
    At the start, and at the end.
    """

    async def at_the_start(driver: Driver) -> None:
        with pytest.raises(AttachError, match="ended with 7: nothing"):
            await driver.begin(deadline=DEADLINE)

    async def at_the_end(driver: Driver) -> None:
        await driver.begin(deadline=DEADLINE)
        with pytest.raises(AttachError, match="ended with 8") as raised:
            await driver.stop(deadline=DEADLINE)

        assert Reason.STOP_ERROR == raised.value.reason

    run(at_the_start, script("raise SystemExit(7)"), tmp_path)
    run(at_the_end, script(ENDS_ON_SIGINT + "raise SystemExit(8)"), tmp_path)


def test_a_program_that_cannot_be_run_is_an_error_with_its_path(tmp_path: Path) -> None:
    """
    Where it was found and has gone since, for example.
    """
    tool = Script(command=(str(tmp_path / "gone"),), begin=READY)

    async def work(driver: Driver) -> None:
        with pytest.raises(AttachError, match=r"gone: No such file or directory"):
            await driver.begin(deadline=DEADLINE)

    run(work, tool, tmp_path)


def test_a_tool_that_never_records_is_given_up(tmp_path: Path) -> None:
    """
    With what it said last.
    """

    async def work(driver: Driver) -> None:
        with pytest.raises(AttachError, match=r"did not start to record within 0.2 s") as raised:
            await driver.begin(deadline=0.2)

        assert Reason.START_ERROR == raised.value.reason

    run(work, script("signal.sigwait([signal.SIGTERM])"), tmp_path)


def test_a_tool_that_hangs_when_stopped_is_killed_with_its_children(tmp_path: Path) -> None:
    """
    Neither it nor what it started is there afterwards.
    """
    text = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(f"recording {child.pid}", flush=True)
signal.sigwait([signal.SIGTERM])
"""
    found: list[int] = []

    async def work(driver: Driver) -> None:
        await driver.begin(deadline=DEADLINE)
        found.extend([driver.pid, int(driver.last_words().split()[1])])
        with pytest.raises(AttachError, match=r"did not end within 0\.2 s, and was killed") as raised:
            await driver.stop(deadline=0.2)

        assert Reason.STOP_TIMEOUT == raised.value.reason

    run(work, script(text, begin=(Turn(until=re.compile(r"recording \d+\n")),)), tmp_path)

    # Of the child nobody here is the parent: it is killed, and nobody waits until it has gone.
    assert holds(lambda: not any(runs(pid) for pid in found))


def test_what_a_tool_leaves_is_killed_at_its_end_and_never_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Its number may be another group's by the time it is closed.
    """
    text = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(f"recording {child.pid}", flush=True)
"""
    killed: list[int] = []
    kill = os.killpg

    def noted(group: int, number: int) -> None:
        killed.append(group)
        kill(group, number)

    monkeypatch.setattr(os, "killpg", noted)

    async def work(driver: Driver) -> None:
        await driver.begin(deadline=DEADLINE)
        assert 0 == await driver.ended()
        child = int(driver.last_words().split()[1])
        at_the_end = list(killed)
        await driver.stop(deadline=DEADLINE)
        await driver.close()

        assert [driver.pid] == at_the_end == killed
        assert holds(lambda: not runs(child))

    run(work, script(text, begin=(Turn(until=re.compile(r"recording \d+\n")),)), tmp_path)


ESCAPED = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
open("child", "w").write(str(child.pid))
"""
"""A child in a session of its own holds the tool's output, and nobody ends it."""


@pytest.mark.parametrize(
    "end",
    ["signal.sigwait([signal.SIGINT])", "raise SystemExit(5)"],
    ids=["told to", "by itself"],
)
def test_the_end_of_a_tool_is_noticed_whoever_holds_its_output(tmp_path: Path, end: str) -> None:
    """
    Long before it would be given up, with its exit code, and its output is let go of.
    """

    async def work(driver: Driver) -> None:
        async with asyncio.timeout(DEADLINE):
            await driver.begin(deadline=DEADLINE)
            code = await driver.ended() if "Exit" in end else 0
            if not code:
                await driver.stop(deadline=DEADLINE)

        assert code in {0, 5}
        assert "recording" == driver.last_words()

    try:
        run(work, script(f"{ESCAPED}\nprint('recording', flush=True)\n{end}"), tmp_path)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_tool_that_ends_at_once_is_an_error_whoever_holds_its_output(tmp_path: Path) -> None:
    """
    It does not have to be waited for until it should have recorded.
    """

    async def work(driver: Driver) -> None:
        with pytest.raises(AttachError, match="ended with 6: nothing") as raised:
            await driver.begin(deadline=DEADLINE)

        assert Reason.START_ERROR == raised.value.reason

    try:
        run(work, script(f"{ESCAPED}\nraise SystemExit(6)"), tmp_path)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_the_dialogue_goes_turn_by_turn(tmp_path: Path) -> None:
    """
    Each line is said when the one before was understood, and a refusal ends it.
    """
    text = """
import sys
for line in sys.stdin:
    word = line.strip()
    print("ERROR: not twice" if word == "again" else f"{word} success", flush=True)
    if word == "quit":
        break
"""
    begin = (Turn(say="start", until=re.compile("start success")),)
    finish = (Turn(say="stop", until=re.compile("stop success")), Turn(say="quit", until=re.compile("quit success")))

    async def well(driver: Driver) -> None:
        await driver.begin(deadline=DEADLINE)
        await driver.stop(deadline=DEADLINE)

        assert "quit success" == driver.last_words()

    async def refused(driver: Driver) -> None:
        with pytest.raises(AttachError, match="ERROR: not twice"):
            await driver.begin(deadline=DEADLINE)

    run(well, script(text, begin=begin, finish=finish, stop=None), tmp_path)
    run(refused, script(text, begin=(*begin, Turn(say="again", until=re.compile("again success")))), tmp_path)


def test_what_it_prints_is_kept_in_part(tmp_path: Path) -> None:
    """
    The end of it, and the word that is waited for is found whatever came before.
    """
    text = f"print('x' * 1_000_000, flush=True)\n{ENDS_ON_SIGINT}sys.stdout.write('y' * 1_000_000)"

    async def work(driver: Driver) -> None:
        await driver.begin(deadline=DEADLINE)
        await driver.stop(deadline=DEADLINE)

        assert KEPT_OUTPUT == len(driver.last_words())

    run(work, script(text), tmp_path)


def test_the_word_that_is_waited_for_is_found_whatever_comes_after_it(tmp_path: Path) -> None:
    """
    However fast: far more lines than are kept, at once.
    """
    text = """
import sys
sys.stdout.write("recording\\n" + "a line\\n" * 100_000)
sys.stdout.flush()
signal.sigwait([signal.SIGINT])
"""

    async def work(driver: Driver) -> None:
        await driver.begin(deadline=DEADLINE)
        await driver.stop(deadline=DEADLINE)

    run(work, script(text), tmp_path)


def test_a_tool_ends_with_the_sidecar_that_was_killed(tmp_path: Path) -> None:
    """
    It is sent the signal that lets it write what it has.
    """
    tool = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n{ENDS_ON_SIGINT}"
    parent = f"""
import os, subprocess, sys, signal
command = [sys.executable, "-I", "-S", {LEASH!r}, "2", str(os.getpid()), sys.executable, "-c", {tool!r}]
subprocess.Popen(command, start_new_session=True)
signal.pause()
"""
    sidecar = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert sidecar.stdout is not None
    with sidecar.stdout:
        assert "recording\n" == sidecar.stdout.readline()
        sidecar.kill()
        sidecar.wait()

        # The pipe ends when the tool has.
        assert "written\n" == sidecar.stdout.read()
