"""
The windows of a run as ``stepscope windows`` lists them, and the recordings that were expected and are missing.

No word is broken: who copies an id out of it has all of it. Paths are in ``--json`` and in ``stepscope show``.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Column, Table

from stepscope import names
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar import roster
from stepscope_sidecar.labels import process_name, seconds, size, step_numbers
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.render import STORE
from stepscope_sidecar.screen import Screen, console

MAX_MISSING = 20
"""Missing recordings that are named: a rank that is always missing would fill the screen."""

REMARKS = max(map(len, names.Reason))
"""Columns for remarks, at least: a reason is one word."""

STATE_STYLES = {"ready": "green", "recording": "cyan", "denied": "yellow", "failed": "red", "aborted": "red"}

REMOVED = "the recording was removed"
"""How the detail of a window begins to say so (see ``removal``)."""


def print_windows(rows: Iterable[Mapping[str, Any]], folder: Path) -> None:
    """
    A line per window of the run in ``folder``.
    """
    rows = list(rows)
    if not rows:
        console().print(_nothing(folder), markup=False)
        return
    # Where there is one node alone, it goes without saying.
    several = len({row["node"] for row in rows}) > 1
    headings = ("window", "step", *["node"] * several, "process", "level", "state")
    cells = [_cells(row, several=several) for row in rows]
    needed = [max(map(cell_len, column)) for column in zip(headings, *cells, strict=True)]
    remarks = Column("remarks", min_width=REMARKS, overflow="fold")
    found = Table(*(Column(heading, no_wrap=True) for heading in headings), remarks, box=None, padding=(0, 1, 0, 0))
    for row, of_row in zip(rows, cells, strict=True):
        *first, state = map(escape, of_row)
        style = STATE_STYLES.get(row["state"], "default")
        found.add_row(*first, f"[{style}]{state}[/]", escape(remark(row)))
    # Each column has a space after it. A terminal that is narrower breaks lines itself, and loses nothing.
    wide = sum(needed) + len(needed) + REMARKS
    out = console()
    (out if out.width >= wide else Screen(highlight=False, width=wide)).print(found)


def _cells(row: Mapping[str, Any], *, several: bool) -> list[str]:
    first, last = row["step"], row["last_step"]
    # Recorded from outside, it may be another process than the one of that role and rank.
    pid = row["pid"] if row["tool"] in LEAVES else None
    return [
        row["window"],
        f"{step_numbers(first, last)}: v{first - 1} to v{max(first, last)}",
        *([row["node"]] * several),
        process_name(row["role"], row["rank"], pid=pid),
        # The tool is in the id.
        row["level"],
        row["state"],
    ]


def remark(row: Mapping[str, Any]) -> str:
    """
    What else is to be said of a window: whether its recording is whole, and why there is none or not all of it.
    """
    told, detail = [], row["detail"]
    if row["complete"] is True:
        told.append("complete")
    elif row["complete"] is False:
        share = row["incomplete_share"]
        missing = f", {share:.0%} missing" if share else ""
        told.append(f"incomplete: {row['incomplete_reason']}{missing}")
    if row["reason"] not in ("", names.Reason.BOUNDARY):
        told.append(row["reason"])
    if row["state"] == names.State.READY and not row["artifact"] and row["sha256"]:
        known = REMOVED in detail
        detail = detail.replace(REMOVED, "removed") if known else "; ".join(filter(None, ("removed", detail)))
    elif row["bytes"]:
        told.append(size(row["bytes"]))
    if row["stall_seconds"]:
        told.append(f"stall {seconds(sum(row['stall_seconds'].values()))}")
    return ": ".join(filter(None, (", ".join(told), detail)))


def _nothing(folder: Path) -> str:
    with open_reader(folder / STORE) as reader:
        revisions = reader.selections()
    last = revisions[-1] if revisions else None
    if last is not None and last.stopped:
        return f"no window was asked for; recording was stopped ({last.source})"
    if last is not None and last.text:
        return f"no window was asked for (yet); selected are the steps {last.text}"
    return f"no window was asked for; name steps with {names.STEPS}, or stepscope profile --steps"


def print_missing(rows: Iterable[Mapping[str, Any]], folder: Path) -> None:
    """
    A line for each of the last recordings that were expected in the run in ``folder``, and of which ``rows`` have no
    window that says why they are missing.
    """
    told = {(row["role"], row["rank"], step) for row in rows for step in range(row["step"], row["last_step"] + 1)}
    with open_reader(folder / STORE) as reader:
        found = [
            row
            for row in roster.missing_objects(reader, node="")
            if (row["role"], row["rank"], row["step"]) not in told
        ]
    out = console()
    for row in found[-MAX_MISSING:]:
        where = f" on {row['node']}" if row["node"] else ""
        out.print(f"missing: step {row['step']}, {row['role']} {row['rank']}{where}: {row['reason']}", markup=False)
    if (more := len(found) - MAX_MISSING) > 0:
        out.print(f"and {more} before", markup=False)
