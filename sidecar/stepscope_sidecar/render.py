"""
What the command line shows: tables, the progress of the demo, and the same as JSON objects.

Reads the store of a run; decides nothing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from stepscope import names
from stepscope.selection import Selection
from stepscope.settings import Settings
from stepscope_sidecar import addressee, nodefolder, orphans, roster, schema, supervise
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.screen import console as console
from stepscope_sidecar.screen import warn as warn

STORE = schema.FILE

WEIGHTS = "weights in force"

MAX_SPANS = 200
"""Spans shown as a table; programs ask for JSON."""


def table(*headings: str) -> Table:
    """
    A table that cuts nothing off: a person copies ids and paths from it.
    """
    return Table(*(Column(heading, overflow="fold") for heading in headings))


def window_objects(folder: Path) -> list[dict[str, Any]]:
    """
    The windows of the run in ``folder``, as ``stepscope windows --json`` prints them.
    """
    with open_reader(folder / STORE) as reader:
        rows, elsewhere = orphans.shown(reader.windows(), attended=orphans.attended(folder)), reader.elsewhere()
    return roster.window_objects(rows, elsewhere, directory=nodefolder.directory(folder))


def span_objects(folder: Path, *, step: int | None) -> list[dict[str, Any]]:
    """
    The spans of the run in ``folder``, as ``stepscope spans --json`` prints them.
    """
    with open_reader(folder / STORE) as reader:
        return [dict(row.json()) for row in reader.spans(step=step)]


def selected(settings: Settings) -> str:
    """
    What a run with ``settings`` records, for a person.
    """
    return f"steps {settings.selection.text} at level {settings.level}" if settings.selection else "no step"


def announce(sidecar: supervise.Sidecar) -> None:
    """
    One line at the start of a run.
    """
    settings = sidecar.settings
    warn(f"run {run_name(settings.attempt_folder)}, recording {selected(settings)}; its page is {sidecar.url()}")


def conclude(folder: Path) -> None:
    """
    One line at the end of a run: its windows by state, and where they are.
    """
    if not (folder / STORE).exists():
        warn(f"nothing is known of the run: no sidecar came to keep it in {folder}")
        return
    counted = ", ".join(outcomes(window_objects(folder))) or "no window was asked for"
    if unmet := missed_steps(folder):
        counted += f"; {unmet}"
    warn(f"{counted}; see them with: stepscope windows --run {run_name(folder)}")


def run_name(folder: Path) -> str:
    """
    What the run in ``folder`` is called, as ``--run`` takes it.
    """
    return addressee.run_name(folder)


def missed_steps(folder: Path) -> str:
    """
    The selected steps that did not occur in the run in ``folder``, for a person; "" if all did.
    """
    with open_reader(folder / STORE) as reader:
        processes, revisions = reader.processes(), reader.selections()
    if not processes or not revisions:
        return ""
    named = Selection.parse(revisions[-1].text).unreachable(
        resumed_from=max(process.resumed_from or 0 for process in processes),
        # What a process told of its step's end may be lost with a sidecar; of the version in force it tells again.
        total_steps=max(max(process.closed_step, process.param_version) for process in processes),
    )
    return f"selected but not reached: {', '.join(named)}" if named else ""


def outcomes(windows: Iterable[dict[str, Any]]) -> list[str]:
    """
    How many windows ended alike, and why those did that left no recording or not all of it.
    """
    counts: dict[tuple[str, str], int] = {}
    for window in windows:
        state, why = window["state"], ""
        if state != names.State.READY:
            why = f" ({window['reason']}{': ' * bool(window['detail'])}{window['detail']})" * bool(window["reason"])
        elif window["complete"] is False:
            why = f" but incomplete ({window['incomplete_reason']})"
        if state == names.State.READY and not window["artifact"] and window["sha256"]:
            why += ", since removed"
        counts[state, why] = counts.get((state, why), 0) + 1
    return [f"{count} {state}{why}" for (state, why), count in counts.items()]


def print_spans(rows: list[dict[str, Any]]) -> None:
    """
    A line per span.
    """
    found = table("step", "v", "process", "span", "ms", "bucket", "span id", "parent", "trace")
    for row in rows[:MAX_SPANS]:
        attributes = row["attributes"]
        found.add_row(
            *(escape(str(attributes.get(name, ""))) for name in (names.STEP, names.PARAM_VERSION)),
            escape(f"{attributes.get(names.ROLE, '')} {attributes.get(names.RANK, '')}"),
            escape(row["name"]),
            f"{(row['end_unix_ns'] - row['start_unix_ns']) / 1e6:.1f}",
            escape(str(attributes.get(names.BUCKET, ""))),
            row["span_id"],
            row["parent_span_id"],
            row["trace_id"],
        )
    out = console()
    out.print(found)
    if len(rows) > MAX_SPANS:
        out.print(f"{len(rows) - MAX_SPANS} more; --step narrows, --json prints all")


def print_capabilities(capabilities: dict[str, Any]) -> None:
    """
    A line per tool: what it can record here, or why it cannot.
    """
    found = table("tool", "here", "levels", "remarks")
    for tool, entry in capabilities["tools"].items():
        reasons = [f"not {level}: {why}" if level else why for level, why in entry["unavailable"].items()]
        remarks = "; ".join(reasons or [entry["note"]])
        found.add_row(tool, "yes" if entry["available"] else "no", ", ".join(entry["levels"]) or "-", escape(remarks))
    out = console()
    out.print(found)
    for key, value in capabilities["environment"].items():
        out.print(f"{key}: {value}", markup=False)


def print_verl(found: dict[str, Any]) -> None:
    """
    The installed verl, whether it would be instrumented, and a line for each place that is not found in it.
    """
    out = console()
    if not found["installed"]:
        out.print(found["inactive"], markup=False)
        return
    out.print(f"verl {found['version']}: {found['found']} places found, {len(found['missing'])} not", markup=False)
    state = f"inactive: {found['inactive']}" if found["inactive"] else "active: every process that imports verl"
    out.print(state, markup=False)
    for item in found["missing"]:
        out.print(f"not found: {item['place']} ({item['reason']})", markup=False)


def near(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
