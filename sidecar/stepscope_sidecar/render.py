"""
What the command line shows: tables, the progress of the demo, and the same as JSON objects.

Reads the store of a run; decides nothing.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import httpx
from rich.console import Console
from rich.live import Live
from rich.table import Table

from stepscope import names
from stepscope.settings import Settings
from stepscope_sidecar import supervise
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.steptable import StepRow, step_rows

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
    windows = window_objects(folder)
    states: dict[str, int] = {}
    for window in windows:
        states[window["state"]] = states.get(window["state"], 0) + 1
    return {"live": False, "folder": str(folder), "windows": states}


def status_text(found: dict[str, Any]) -> str:
    """
    ``status`` for a person.
    """
    head = "running" if found["live"] else "ended (read from its store)"
    lines = [f"{Path(found['folder']).name}: {head}"]
    for key, value in found.items():
        if key not in {"live", "folder"}:
            lines.append(f"  {key}: {json.dumps(value) if isinstance(value, (dict, list)) else value}")
    return "\n".join(lines)


def print_windows(rows: Iterable[dict[str, Any]]) -> None:
    """
    A line per window.
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
            seconds(sum(row["stall_seconds"].values())),
            size(row["bytes"]),
            _near(row["artifact"]),
        )
    out = console()
    out.print(table if table.row_count else "no window was asked for; name steps with STEPSCOPE_STEPS")


def print_spans(rows: list[dict[str, Any]]) -> None:
    """
    A line per span.
    """
    table = Table("step", "v", "process", "span", "ms", "bucket", "trace")
    for row in rows[:MAX_SPANS]:
        attributes = row["attributes"]
        table.add_row(
            str(attributes.get(names.STEP, "")),
            str(attributes.get(names.PARAM_VERSION, "")),
            f"{attributes.get(names.ROLE, '')} {attributes.get(names.RANK, '')}",
            row["name"],
            f"{(row['end_unix_ns'] - row['start_unix_ns']) / 1e6:.1f}",
            str(attributes.get(names.BUCKET, "")),
            row["trace_id"],
        )
    out = console()
    out.print(table)
    if len(rows) > MAX_SPANS:
        out.print(f"{len(rows) - MAX_SPANS} more; --step narrows, --json prints all")


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


class Progress:
    """
    The demo on a terminal: a row a step while it runs, a table of the whole at the end.
    """

    def __init__(self, settings: Settings) -> None:
        """
        Prepare to show a run with ``settings``.
        """
        self._settings = settings
        self._rows: list[dict[str, Any]] = []
        self._console = console()

    def follow(self, stream: IO[str]) -> None:
        """
        Show the job's rows as they arrive on ``stream``, until it ends.
        """
        recorded = "nothing" if self._settings.disabled else self._settings.selection.text or "nothing"
        self._console.print(
            f"fully-asynchronous GRPO on Ray; recording steps {recorded} at level {self._settings.level}"
        )
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            for line in stream:
                row = _parse(line)
                if row is None:
                    self._console.print(line.rstrip(), markup=False)
                elif "step" in row:
                    self._rows.append(row)
                    if self._console.is_terminal:
                        live.update(self._table([]))
                    else:
                        self._console.print(_brief(row))

    def close(self, folder: Path | None) -> None:
        """
        The whole run as a table, and where its recordings are (``folder`` is None where nothing was recorded).
        """
        if folder is None:
            self._console.print(self._table([]))
            return
        with open_reader(folder / STORE) as reader:
            steps = step_rows(reader)
        self._console.print(self._table(steps))
        windows = [window for window in window_objects(folder) if window["state"] == names.State.READY]
        latest = folder.parent / "latest"
        self._console.print(f"{len(windows)} recordings in {_near(str(latest if latest.exists() else folder))}")
        for window in windows:
            place = f"{step_name(window['step'])}, {window['role']} {window['rank']}"
            self._console.print(f"  {place}: {_near(window['artifact'])} ({size(window['bytes'])})", soft_wrap=True)
        self._console.print(
            "open one: load it in Perfetto (ui.perfetto.dev) or chrome://tracing; it stays on this machine"
        )
        self._console.print("more: .venv/bin/stepscope windows, .venv/bin/stepscope spans --step 5")

    def _table(self, steps: list[StepRow]) -> Table:
        known = {row.step: row for row in steps}
        table = Table("step", WEIGHTS, "reward", "trainer s", "rollouter s", "staleness", "recorded", "overhead")
        for row in self._rows:
            found = known.get(row["step"])
            table.add_row(
                *step_cells(row["step"]),
                f"{row.get('reward', float('nan')):.3f}",
                _number((found.trainer_seconds if found else None) or row.get("trainer_seconds")),
                _number((found.rollouter_seconds if found else None) or row.get("rollouter_seconds")),
                _number(row.get("staleness")) or "unknown",
                found.recorded if found else "",
                found.overhead if found else "",
            )
        return table


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


def _parse(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _brief(row: dict[str, Any]) -> str:
    return f"{step_name(row['step'])}: reward {row.get('reward', float('nan')):.3f}"


def _near(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
