"""
Where everything goes that the command line tells a person: names in it are others', and none of them steers a terminal.

Spans, roles, reasons and warnings come from training processes, from other nodes and from whoever reaches the receiver.
JSON does not come through here: it escapes what cannot be printed, and a program wants to have it.
"""

import contextlib
import re
import sys
from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

UNBOUNDED = 1000
"""Columns where nobody looks: lines are as long as what they say."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Goes without a mark: Ray colours what its workers print."""

KEPT = "\n\t"
"""Characters that cannot be printed, and steer nothing."""


def printable(text: str) -> str:
    """
    ``text`` with a question mark for each character that would do something to a terminal, or turn round what is shown.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in KEPT else "?" for one in COLOUR.sub("", text))


class Screen(Console):
    """
    A console whose own colours and cursor are the only ones that reach the terminal.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """
        As a console does, without what others have put into the text.
        """
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console() -> Screen:
    """
    One for standard output; as wide as it likes where nobody looks.
    """
    out = Screen(highlight=False)
    return out if out.is_terminal else Screen(highlight=False, width=UNBOUNDED)


def say(lines: Iterable[str], *, err: bool = False) -> None:
    """
    Print ``lines``, each by itself.
    """
    for line in lines:
        typer.echo(printable(line), err=err)


def warn(message: str) -> None:
    """
    One line to standard error; where nobody reads that any more, or it is full, a run goes on all the same.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(f"stepscope: {printable(message)}\n")
        sys.stderr.flush()
