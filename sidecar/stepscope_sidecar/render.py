"""
What the command line shows: tables, the progress of the demo, and the same as JSON objects.

Reads the store of a run; decides nothing.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from stepscope import names
from stepscope.settings import Settings
from stepscope_sidecar import supervise
from stepscope_sidecar.reader import open_reader

STORE = "stepscope.db"

WEIGHTS = "weights in force"

MAX_SPANS = 200
"""Spans shown as a table; programs ask for JSON."""

STATE_STYLES = {"ready": "green", "recording": "cyan", "denied": "yellow", "failed": "red", "aborted": "red"}


def warn(message: str) -> None:
    """
    One line to standard error.
    """
    sys.stderr.write(f"stepscope: {message}\n")
    sys.stderr.flush()


def console() -> Console:
    """
    A console for standard output; as wide as it likes where nobody looks.
    """
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=200)


def window_objects(folder: Path) -> list[dict[str, Any]]:
    """
    The windows of the run in ``folder``, as ``stepscope windows --json`` prints them.
    """
    with open_reader(folder / STORE) as reader:
        return [dict(row.json(directory=folder.parent)) for row in reader.windows()]


def span_objects(folder: Path, *, step: int | None) -> list[dict[str, Any]]:
    """
    The spans of the run in ``folder``, as ``stepscope spans --json`` prints them.
    """
    with open_reader(folder / STORE) as reader:
        return [dict(row.json()) for row in reader.spans(step=step)]


def status(folder: Path) -> dict[str, Any]:
    """
    What the sidecar says of itself, or, where it has ended, what its store says.
    """
    url = supervise.endpoints(folder).get("http")
    if url:
        try:
            answer = httpx.get(f"{url}/api/status", timeout=2.0, trust_env=False)
            found = answer.raise_for_status().json()
            if isinstance(found, dict) and found.get("attempt", "") in folder.name:
                return {"live": True, "folder": str(folder), "http": url, **found}
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            pass
    with open_reader(folder / STORE) as reader:
        versions = [row.param_version for row in reader.processes()]
        revisions = reader.selections()
    last = revisions[-1] if revisions else None
    return {
        "live": False,
        "folder": str(folder),
        "param_version": max(versions, default=0),
        "selection": last.text if last else "",
        "stopped": last.stopped if last else False,
        "stopped_by": last.source if last and last.stopped else "",
        "windows": _states(folder),
    }


def status_text(found: dict[str, Any]) -> str:
    """
    ``status`` for a person.
    """
    head = "running" if found["live"] else "ended (read from its store)"
    lines = [f"{Path(found['folder']).name}: {head}"]
    for key, value in found.items():
        if key == "processes":
            lines += [f"  {_process(process)}" for process in value]
        elif key not in {"live", "folder"} and value not in ({}, []):
            lines.append(f"  {key}: {json.dumps(value) if isinstance(value, (dict, list)) else value}")
    return "\n".join(lines)


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
    warn(f"run {settings.attempt_folder.name}, recording {selected(settings)}; its page is {sidecar.url()}")


def conclude(folder: Path) -> None:
    """
    One line at the end of a run: its windows by state, and where they are.
    """
    states = _states(folder)
    counted = ", ".join(f"{count} {state}" for state, count in states.items()) or "no window was asked for"
    warn(f"{counted}; see them with: stepscope windows --run {folder.name}")


def _states(folder: Path) -> dict[str, int]:
    states: dict[str, int] = {}
    for window in window_objects(folder):
        states[window["state"]] = states.get(window["state"], 0) + 1
    return states


def _nothing(folder: Path) -> str:
    with open_reader(folder / STORE) as reader:
        revisions = reader.selections()
    last = revisions[-1] if revisions else None
    if last is not None and last.stopped:
        return f"no window was asked for; recording was stopped ({last.source})"
    if last is not None and last.text:
        return f"no window was asked for (yet); selected are the steps {last.text}"
    return f"no window was asked for; name steps with {names.STEPS}, or stepscope profile --steps"


def print_windows(rows: Iterable[dict[str, Any]], folder: Path) -> None:
    """
    A line per window of the run in ``folder``.
    """
    table = Table(
        "step", WEIGHTS, "process", "tool", "level", "state", "reason", "complete", "stall", "size", "recording"
    )
    for row in rows:
        complete = {True: "yes", False: f"no: {row['incomplete_reason']}", None: ""}[row["complete"]]
        table.add_row(
            *step_cells(row["step"]),
            f"{row['role']} {row['rank']}",
            row["tool"],
            row["level"],
            f"[{STATE_STYLES.get(row['state'], 'default')}]{row['state']}[/]",
            "" if row["reason"] == names.Reason.BOUNDARY else row["reason"],
            complete,
            seconds(sum(row["stall_seconds"].values())) if row["stall_seconds"] else "",
            size(row["bytes"]) if row["bytes"] else "",
            near(row["artifact"]),
        )
    out = console()
    out.print(table if table.row_count else _nothing(folder))


def print_spans(rows: list[dict[str, Any]]) -> None:
    """
    A line per span.
    """
    table = Table("step", "v", "process", "span", "ms", "bucket", "span id", "trace")
    for row in rows[:MAX_SPANS]:
        attributes = row["attributes"]
        table.add_row(
            str(attributes.get(names.STEP, "")),
            str(attributes.get(names.PARAM_VERSION, "")),
            f"{attributes.get(names.ROLE, '')} {attributes.get(names.RANK, '')}",
            row["name"],
            f"{(row['end_unix_ns'] - row['start_unix_ns']) / 1e6:.1f}",
            str(attributes.get(names.BUCKET, "")),
            row["span_id"],
            row["trace_id"],
        )
    out = console()
    out.print(table)
    if len(rows) > MAX_SPANS:
        out.print(f"{len(rows) - MAX_SPANS} more; --step narrows, --json prints all")


def _process(process: dict[str, Any]) -> str:
    alive = "" if process.get("alive") else ", ended"
    place = f"{process.get('role')} {process.get('rank')} (pid {process.get('pid')}{alive})"
    return f"{place}: {step_name(process['step'])}" if process.get("step") else place


def print_capabilities(found: dict[str, Any]) -> None:
    """
    A line per tool: what it can record here, or why it cannot.
    """
    table = Table("tool", "levels here", "not here, because")
    for tool, entry in found["tools"].items():
        reasons = "; ".join(f"{level}: {why}" if level else why for level, why in entry["unavailable"].items())
        table.add_row(tool, ", ".join(entry["levels"]) or "-", reasons)
    out = console()
    out.print(table)
    for key, value in found["environment"].items():
        out.print(f"{key}: {value}")


def step_cells(step: int) -> tuple[str, str]:
    """
    A step as a table prints it: its number, and which weights it works under and makes.
    """
    return str(step), f"v{step - 1}, makes v{step}"


def step_name(step: int) -> str:
    """
    A step as every surface prints it.
    """
    return f"step {step} (weights v{step - 1} in force, makes v{step})"


def seconds(value: float) -> str:
    """
    ``value`` seconds for a person.
    """
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def size(value: int) -> str:
    """
    ``value`` bytes for a person.
    """
    number = float(value)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def near(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
