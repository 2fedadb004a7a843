"""
One run of a tool's process: starts it, knows when it records, stops it, and never leaves it behind.

Owns the process, what it prints and the dialogue with it. Which program that is, and what it says, is in a
:class:`Script`. Use it in the event loop alone.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from stepscope.names import Reason
from stepscope_sidecar.attach.target import over
from stepscope_sidecar.errors import AttachError

LEASH = str(Path(__file__).with_name("leash.py"))

START_DEADLINE = 20.0
"""Seconds until a tool has to record: py-spy takes 0.1, on a machine short of CPU far more."""

STOP_DEADLINE = 60.0
"""Seconds for a tool to write what it recorded, after which it is killed; py-spy takes 0.03."""

KILL_DEADLINE = 5.0
"""Seconds until the kernel has ended what was killed; a process in an uninterruptible call may take longer."""

LAST_OUTPUT = 1.0
"""Seconds for what an ended process printed to be read; it lies in a pipe already."""

KEPT_OUTPUT = 16 * 1024
"""Characters of the last output that are kept: enough for an error and its stack."""

CHUNK = 4096
"""Bytes read at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """
    One turn of a dialogue: what is said to the tool, if anything, and what it answers when it has understood.
    """

    until: re.Pattern[str]
    say: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """
    How one tool is driven. It records after the last turn of ``begin``, until ``stop`` or the first turn of ``finish``.

    ``refused`` is what it prints when it cannot do what was asked.
    """

    command: tuple[str, ...]
    begin: tuple[Turn, ...]
    finish: tuple[Turn, ...] = ()
    stop: signal.Signals | None = None
    refused: re.Pattern[str] = re.compile(r"(?im)^error\b.*")
    orphaned: signal.Signals = signal.SIGKILL
    """What it is sent when the sidecar ends before it."""


@dataclass(frozen=True, slots=True)
class Printed:
    """
    What a process prints, as it comes. Close it.
    """

    stream: asyncio.StreamReader
    _transport: asyncio.ReadTransport

    @classmethod
    async def of(cls, end: int) -> "Printed":
        """
        What comes out of the pipe whose end for reading is ``end``.
        """
        stream = asyncio.StreamReader()
        pipe = open(end, "rb", buffering=0)  # noqa: SIM115 - nothing is read here; the transport closes it
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
        return cls(stream, transport)

    def close(self) -> None:
        """
        Hear no more, whoever may print.
        """
        self._transport.close()


class Driver:
    """
    A tool's process that has been started. Close it, whatever happens.
    """

    def __init__(self, script: Script, process: asyncio.subprocess.Process, printed: "Printed") -> None:
        self._script = script
        self._process = process
        self._printed = printed
        self._output = ""
        self._heard = asyncio.Condition()
        self._mark = 0
        self._dropped = 0
        self._silent = False
        self._killed = False
        self._listening = asyncio.create_task(self._listen())
        self._ending = asyncio.create_task(self._end())

    @classmethod
    async def spawn(cls, script: Script, *, cwd: Path) -> "Driver":
        """
        Start the tool's process.

        Raises:
            AttachError: there can be no such process.
        """
        speaks = any(turn.say for turn in (*script.begin, *script.finish))
        # A pipe of ours: asyncio does not know a process as ended while somebody holds a pipe that it has made.
        end, writer = os.pipe()
        printed = await Printed.of(end)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                LEASH,
                str(int(script.orphaned)),
                str(os.getpid()),
                *script.command,
                stdin=asyncio.subprocess.PIPE if speaks else asyncio.subprocess.DEVNULL,
                stdout=writer,
                stderr=asyncio.subprocess.STDOUT,
                cwd=cwd,
                # A group of its own: its children are killed with it, and Ctrl-C in a terminal is not meant for it.
                start_new_session=True,
            )
        except BaseException as error:
            # Cancelled, too: nobody else would let go of the pipe.
            printed.close()
            if not isinstance(error, OSError):
                raise
            raise AttachError(f"{script.command[0]} cannot be started: {error}", reason=Reason.START_ERROR) from None
        finally:
            os.close(writer)
        return cls(script, process, printed)

    @property
    def pid(self) -> int:
        """
        The pid of the tool's process, which leads its group.
        """
        return self._process.pid

    async def begin(self, *, deadline: float = START_DEADLINE) -> None:
        """
        Say what makes it record, and wait until it does.

        Raises:
            AttachError: it refused, ended, or was not ready within ``deadline`` seconds.
        """
        await self._through(self._script.begin, deadline=deadline, reason=Reason.START_ERROR, doing="start to record")

    async def ended(self) -> int:
        """
        Wait until it has ended, by itself or because it was stopped; its exit code.
        """
        return await asyncio.shield(self._ending)

    async def stop(self, *, deadline: float = STOP_DEADLINE) -> None:
        """
        End the recording and wait until it is written and the process gone.

        Raises:
            AttachError: it hangs (and has been killed), or ended with an error.
        """
        try:
            async with asyncio.timeout(deadline):
                if self._script.stop is not None:
                    with contextlib.suppress(ProcessLookupError):
                        self._process.send_signal(self._script.stop)
                await self._turns(self._script.finish, Reason.STOP_ERROR)
                code = await self.ended()
        except TimeoutError:
            detail = f"{self._name} did not end within {deadline:g} s, and was killed; it said: {self.last_words()}"
            raise AttachError(detail, reason=Reason.STOP_TIMEOUT) from None
        finally:
            await self.close()
        if code:
            detail = f"{self._name} ended with {code}: {self.last_words()}"
            raise AttachError(detail, reason=Reason.STOP_ERROR)

    async def close(self) -> None:
        """
        Kill what is left of it and of its children.
        """
        self._kill()
        await asyncio.wait({self._ending}, timeout=KILL_DEADLINE)
        for task in (self._ending, self._listening):
            task.cancel()
        self._printed.close()
        await asyncio.gather(self._ending, self._listening, return_exceptions=True)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def last_words(self) -> str:
        """
        The line that says best why it failed: the first error and what caused it, or the last line.
        """
        lines = [line.strip() for line in self._output.splitlines() if line.strip()]
        found = self._script.refused.search(self._output)
        if found is None:
            return lines[-1] if lines else "nothing"
        words = found[0].strip()
        causes = [line.partition(":")[2].strip() for line in lines if re.match(r"\d+:", line) and "::" not in line]
        return f"{words} ({causes[-1]})" if causes else words

    @property
    def _name(self) -> str:
        return Path(self._script.command[0]).name

    async def _through(self, turns: tuple[Turn, ...], *, deadline: float, reason: Reason, doing: str) -> None:
        try:
            async with asyncio.timeout(deadline):
                await self._turns(turns, reason)
        except TimeoutError:
            detail = f"{self._name} did not {doing} within {deadline:g} s; it said: {self.last_words()}"
            raise AttachError(detail, reason=reason) from None

    async def _turns(self, turns: tuple[Turn, ...], reason: Reason) -> None:
        for turn in turns:
            if turn.say:
                await self._say(turn.say)
            await self._hear(turn, reason)

    async def _say(self, line: str) -> None:
        assert self._process.stdin is not None, "a script that speaks has a stdin"
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(line.encode() + b"\n")
            await self._process.stdin.drain()

    async def _hear(self, turn: Turn, reason: Reason) -> None:
        async with self._heard:
            while True:
                fresh = self._output[max(0, self._mark - self._dropped) :]
                if found := turn.until.search(fresh):
                    self._mark = max(self._mark, self._dropped) + found.end()
                    return
                if self._script.refused.search(fresh):
                    raise AttachError(f"{self._name}: {self.last_words()}", reason=reason)
                if self._silent:
                    code = await asyncio.shield(self._ending)
                    detail = f"{self._name} ended with {code}: {self.last_words()}"
                    raise AttachError(detail, reason=reason)
                await self._heard.wait()

    async def _end(self) -> int:
        """
        Its exit code, once it has ended; what it leaves of its group ends with it.
        """
        await over(self._process.pid)
        self._kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        code = await self._process.wait()
        # What it has printed may not have been read yet. A child that left its group may hold the pipe for ever.
        await asyncio.wait({self._listening}, timeout=LAST_OUTPUT)
        self._printed.close()
        return code

    def _kill(self) -> None:
        """
        Kill its group, once: by the end of the tool at the latest, as later its number may be that of another group.
        """
        if self._killed:
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        while data := await self._printed.stream.read(CHUNK):
            async with self._heard:
                self._output += data.decode(errors="replace")
                surplus = max(0, len(self._output) - KEPT_OUTPUT)
                self._output, self._dropped = self._output[surplus:], self._dropped + surplus
                self._heard.notify_all()
            # Whoever waits for a word looks before it may be dropped: reading on does not give way where there is more.
            await asyncio.sleep(0)
        async with self._heard:
            self._silent = True
            self._heard.notify_all()
