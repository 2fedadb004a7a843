"""
The page of all runs in STEPSCOPE_DIR: each attempt, how it stands, and the way to its own page.

Pure.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope_sidecar.pages.html import Content, document, link, table, tag, ways

COLUMNS = ("run", "attempt", "state", "began", "steps", "recordings", "selected steps")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptShown:
    """
    One attempt.
    """

    folder: str
    """Its name in STEPSCOPE_DIR."""
    run: str
    attempt: str
    live: bool
    """Whether its sidecar runs."""
    left: str = ""
    """How it stands where that does not and it cannot be said to have ended."""
    own: bool
    """Whether it is the one that the server is of."""
    began_unix: float = 0.0
    steps: int = 0
    """The highest step that it has, or that a process has entered."""
    recordings: int = 0
    selection: str = ""
    trouble: str = ""
    """Why its store cannot be read."""


def runs_page(attempts: Sequence[AttemptShown], *, more: int = 0) -> str:
    """
    The page, newest first; ``more`` older ones are not listed.
    """
    rows: list[tuple[Content, ...]] = [
        (
            # One that goes on is served by its own sidecar too; this reads what that has written.
            link("./" if one.own else f"runs/{one.folder}/", one.run or one.folder),
            tag("code", one.attempt),
            tag("span", "running" if one.live else one.left or "ended", kind="good" if one.live else "dim"),
            time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one.began_unix)) if one.began_unix else None,
            tag("span", one.trouble, kind="bad") if one.trouble else one.steps,
            one.recordings,
            one.selection,
        )
        for one in attempts
    ]
    left = [tag("p", f"And {more} older ones.", kind="dim")] if more else []
    return document(
        "runs - stepscope",
        [ways(("./", "this run")), tag("h1", "Runs"), table(COLUMNS, rows), *left],
        top="",
        live=None,
    )
