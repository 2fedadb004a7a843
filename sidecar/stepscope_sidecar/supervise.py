"""
A command run beside a sidecar: starts both, restarts a sidecar that died, and waits for the last recordings.

Owns the two child processes of ``stepscope run`` and ``stepscope demo``. What the sidecar does is its own affair; this
asks it over HTTP only whether anything is left to do.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stepscope import endpoint, ids, names
from stepscope.errors import StepscopeError
from stepscope.launch import LOG
from stepscope.output import last_said
from stepscope.settings import Settings, read
from stepscope_sidecar import addressee, nodefolder
from stepscope_sidecar.lifecycle import announced
from stepscope_sidecar.token import headers

MAX_RESTARTS = 3
"""A sidecar that dies three times will die again; the run goes on without it."""

READY_DEADLINE = 15.0
"""Seconds for the sidecar to listen; its imports take one to two seconds, more on a busy machine."""

LINGER = 30.0
"""Seconds after the command's end for windows to become final and the outbox to drain."""

STOP_DEADLINE = 10.0
"""Seconds from SIGTERM to SIGKILL for the sidecar."""

POLL = 0.1
"""Seconds between two looks at a child or at the sidecar's status."""


class SidecarError(StepscopeError):
    """
    The sidecar could not be started; the message is what it said.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """
    What was not finished when the waiting ended.
    """

    windows: int = 0
    spans: int = 0
    reached: bool = True

    def __bool__(self) -> bool:
        """
        Whether anything is left.
        """
        return bool(self.windows or self.spans or not self.reached)


def environment_for(run: str, *, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """
    The environment of a new attempt: run, attempt and an absolute directory are filled in where they are not set.

    Raises:
        ConfigurationError: a ``STEPSCOPE_*`` or ``OTEL_EXPORTER_OTLP_*`` setting cannot be used.
        SidecarError: the directory cannot be written.
    """
    env = dict(os.environ if base is None else base)
    if off(env):
        # The kill switch comes before everything else, a wrong setting included.
        return env
    settings = read(env)
    endpoint.check(env)
    env[names.RUN_ENV] = settings.run or run
    env[names.ATTEMPT_ENV] = settings.attempt or ids.new_attempt()
    env[names.DIR] = str(settings.directory.absolute())
    if settings.steps_file is not None:
        env[names.STEPS_FILE] = str(settings.steps_file)
    folder = read(env).attempt_folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise SidecarError(f"{names.DIR}={settings.directory}: cannot write there ({reason}); name another") from None
    return env


def off(env: Mapping[str, str]) -> bool:
    """
    Whether ``env`` says that nothing is to be started.
    """
    return read({names.DISABLED: env.get(names.DISABLED, "")}).disabled


class Sidecar:
    """
    The sidecar of one attempt, started and kept alive. Not for use from several threads.
    """

    def __init__(self, env: dict[str, str], *, warn: Callable[[str], None]) -> None:
        """
        Prepare a sidecar for the attempt that ``env`` names; ``warn`` is told of deaths and restarts.

        Raises:
            ConfigurationError: a setting cannot be used.
        """
        self.settings: Settings = nodefolder.settle(read(env))
        self._headers = headers(self.settings)
        self._env = env
        self._warn = warn
        self._restarts = 0
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """
        Start it and wait for it; whether it listens. One that takes its time is warned of, and may still come.

        Raises:
            SidecarError: it has ended.
        """
        self._spawn()
        deadline = time.monotonic() + READY_DEADLINE
        while not (listens := self._listens()):
            if self._process is None or self._process.poll() is not None:
                message = last_said(self.settings.attempt_folder / LOG) or "the sidecar has ended"
                self.stop()
                raise SidecarError(message)
            if time.monotonic() > deadline:
                self._warn(
                    f"the sidecar does not listen after {READY_DEADLINE:g} s; the run begins without it, and what is"
                    " selected is recorded from when it does"
                )
                break
            self._stopping.wait(POLL)
        self._watcher = threading.Thread(target=self._watch, name="stepscope-sidecar-watch", daemon=True)
        self._watcher.start()
        return listens

    def url(self) -> str:
        """
        Where its pages and API are now; empty while it does not listen.
        """
        return addressee.url(self.settings.attempt_folder)

    def linger(self, seconds: float = LINGER, *, cut_short: Callable[[], bool]) -> Left:
        """
        Wait until every closed window is final and the outbox is empty, at most ``seconds`` or until it is to be
        ``cut_short``.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = unfinished(self.settings.attempt_folder, headers=self._headers)
            if not left or time.monotonic() > deadline or self._gone() or cut_short():
                return left
            self._stopping.wait(POLL)

    def leave(self) -> None:
        """
        Let it finish what is left on its own: it ends by itself once whoever started it has gone.
        """
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()

    def stop(self) -> None:
        """
        End it in order: SIGTERM, and SIGKILL where that takes too long.
        """
        self.leave()
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _gone(self) -> bool:
        return self._restarts > MAX_RESTARTS

    def _spawn(self) -> None:
        log = self.settings.attempt_folder / LOG
        # A second node of the attempt has a folder of its own in it, which only its sidecar would make.
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            # A session of its own: Ctrl-C at the terminal is for the command, and the sidecar has to outlive it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stepscope_sidecar", "--attended", "parent"],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def _listens(self) -> bool:
        found = announced(self.settings.attempt_folder)
        return bool(self._process) and found.get("pid") == getattr(self._process, "pid", None)

    def _watch(self) -> None:
        while not self._stopping.wait(POLL):
            if self._process is None or self._process.poll() is None:
                continue
            self._restarts += 1
            code = self._process.returncode
            if self._gone():
                self._warn(f"the sidecar ended {self._restarts} times (last exit {code}); the run goes on without it")
                return
            self._warn(f"the sidecar ended (exit {code}); starting it again, {self._restarts} of {MAX_RESTARTS}")
            self._spawn()


def unfinished(folder: Path, *, headers: Mapping[str, str]) -> Left:
    """
    What the sidecar of the run in ``folder`` still has to do, as it tells whoever shows it ``headers``.
    """
    status = addressee.ask(folder, shown=headers).status
    if status is None:
        return Left(reached=False)
    return Left(windows=int(status.get("windows_unfinished", 0)), spans=int(status.get("spans_pending", 0)))


class Signals:
    """
    Ctrl-C, SIGTERM and SIGHUP while a command runs are the command's; after its end they cut the waiting short.

    For the main thread, as a context manager.
    """

    def __init__(self) -> None:
        """
        Nothing is caught before the block is entered.
        """
        # No event: the signal may come while this thread, in a wait for it, holds the event's lock.
        self.caught = 0
        """The last one that came; 0 for none."""
        self._process: subprocess.Popen[str] | None = None
        self._told = False
        self._terminal = os.isatty(0)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Signals":
        """
        Begin to catch.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """
        Give the signals back.
        """
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hand_to(self, process: "subprocess.Popen[str]") -> None:
        """
        From now on they are for ``process``; one that came while it was being started, too.
        """
        self._process = process
        if self.caught and not self._told:
            process.send_signal(self.caught)

    def _catch(self, number: int, frame: object) -> None:
        del frame
        self.caught = number
        if self._process is not None and self._process.poll() is None:
            self._told = True
            # A terminal sends Ctrl-C to the command as well as to us; twice would cut its own ending short.
            if not (number == signal.SIGINT and self._terminal):
                self._process.send_signal(number)


def run_beside(
    command: list[str],
    *,
    env: dict[str, str],
    warn: Callable[[str], None],
    started: Callable[[Sidecar], None] | None = None,
    lines: Callable[[IO[str]], None] | None = None,
) -> int:
    """
    Run ``command`` beside a sidecar and return its exit code (128 + n where signal n ended it).

    ``started`` is told of a sidecar that listens. ``lines`` is given the command's standard output to read; without it
    the command keeps ours. What is not finished in time the sidecar finishes on its own, after we have gone.

    Raises:
        SidecarError: the sidecar or the command could not be started.
    """
    if shutil.which(command[0]) is None:
        raise SidecarError(f"cannot start {command[0]!r}: there is no such program")
    sidecar = None if off(env) else Sidecar(env, warn=warn)
    finished = True
    with Signals() as signals:
        if sidecar is not None and sidecar.start() and started is not None:
            started(sidecar)
        try:
            # What comes while the sidecar is started is for the command, which then is not begun.
            begun = not signals.caught
            code = _run(command, env=env, lines=lines, signals=signals) if begun else -signals.caught
            if begun and sidecar is not None:
                signals.caught = 0
                left = sidecar.linger(cut_short=lambda: signals.caught != 0)
                finished = not left
                if left:
                    warn(_leftovers(left))
        finally:
            if sidecar is not None:
                (sidecar.stop if finished else sidecar.leave)()
    return code if code >= 0 else 128 - code


def _run(command: list[str], *, env: dict[str, str], lines: Callable[[IO[str]], None] | None, signals: Signals) -> int:
    try:
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE if lines else None, text=True)
    except OSError as error:
        raise SidecarError(f"cannot start {command[0]!r}: {error.strerror or error}") from None
    signals.hand_to(process)
    try:
        if lines is not None and process.stdout is not None:
            with process.stdout:
                lines(process.stdout)
        return process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _leftovers(left: Left) -> str:
    if not left.reached:
        return "the sidecar did not answer at the end; what it had received is in its store"
    return (
        f"{left.windows} windows are not final and {left.spans} spans not forwarded; "
        "the sidecar goes on with them and then ends by itself"
    )
