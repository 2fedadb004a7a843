"""
``stepscope status --watch``: a run as it goes on, for somebody who keeps a terminal open beside it.

Owns what is shown, and when: a terminal is drawn anew, anything else gets a block of lines per change, without escape
codes. Asks through what it is given; the lines are ``glance``'s.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator
from datetime import datetime
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stepscope_sidecar.glance import Status, lines

EVERY = 1.0
"""Seconds between looks: a step takes seconds, and a look costs the sidecar well under a millisecond."""

Look = tuple[Status, bool]
"""What a look found, and whether one before it found the run going on."""


def watch(
    look: Callable[[], Status],
    *,
    name: str,
    console: Console,
    pause: Callable[[float], bool],
    now: Callable[[], datetime] = datetime.now,
) -> None:
    """
    Show what ``look`` returns again and again, until ``pause`` says that it is over or Ctrl-C is pressed.
    """
    with _ending(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as told:
        shown = _drawn if console.is_terminal else _printed
        shown(_looks(look, lambda seconds: told() or pause(seconds) or told()), name=name, console=console, now=now)


@contextlib.contextmanager
def _ending(*numbers: signal.Signals) -> Iterator[Callable[[], bool]]:
    """
    Have signals end what is within in order, so that the terminal has its cursor again; whether one has come. The code
    is what a shell says, and 0 for Ctrl-C, which is how a person ends it.
    """
    came: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        came.append(number)
        for each in before:
            # One is enough: another would come in between the terminal and what is put back.
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    # Under nohup a terminal that goes is nothing to end for.
    before = {number: signal.getsignal(number) for number in numbers}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, end)
    try:
        yield lambda: bool(came)
    except BaseException:
        # Wherever it was raised, another error may have come of it, as of a wait that had let go of its lock; or none,
        # as in a callback.
        if not came:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came and came[0] != signal.SIGINT:
        raise SystemExit(128 + came[0])


def _looks(look: Callable[[], Status], pause: Callable[[float], bool]) -> Iterator[Look]:
    was_live = False
    while True:
        found = look()
        yield found, was_live
        was_live = was_live or bool(found.get("live"))
        if pause(EVERY):
            return


def _drawn(looks: Iterator[Look], *, name: str, console: Console, now: Callable[[], datetime]) -> None:
    # Nothing draws but we: a thread of its own would draw the same lines again.
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for found, was_live in looks:
            told = [*lines(found, name=name, was_live=was_live, brief=True), f"{now():%H:%M:%S}; Ctrl-C ends this"]
            live.update(Text("\n".join(told), overflow="fold"), refresh=True)


def _printed(looks: Iterator[Look], *, name: str, console: Console, now: Callable[[], datetime]) -> None:
    before = list[str]()
    for found, was_live in looks:
        state = lines(found, name=name, was_live=was_live, brief=True, ages=False)
        if state != before:
            told = lines(found, name=name, was_live=was_live, brief=True)
            console.file.write("\n".join([f"{now():%H:%M:%S}", *told]) + "\n\n")
            console.file.flush()
        before = state
