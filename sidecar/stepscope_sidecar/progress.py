"""
The demo on a terminal: a row a step while it runs, the table of the whole at the end.

Reads the job's lines and, at the end, the store.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rich.live import Live
from rich.table import Table

from stepscope import names
from stepscope_sidecar import glance
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.labels import plural, process_name, size, step_cells, step_name
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.render import (
    STORE,
    WEIGHTS,
    console,
    missed_steps,
    near,
    outcomes,
    window_objects,
)
from stepscope_sidecar.steptable import StepRow, step_rows

KINETO = "recording.json.gz"
"""What a recording is called that those viewers open."""


TOLD = (f" {names.State.READY}", f" {names.State.READY}, since removed")
"""Ends of outcomes that lines of their own tell."""


class Progress:
    """
    The demo on a terminal: a row a step while it runs, a table of the whole at the end.
    """

    def __init__(self) -> None:
        """
        Nothing is shown yet.
        """
        self._rows: list[dict[str, Any]] = []
        self._console = console()

    def open(self, recorded: str) -> None:
        """
        Say what is about to run, and what of it is recorded.
        """
        self._console.print(f"fully-asynchronous GRPO on Ray; recording {recorded}")

    def follow(self, stream: IO[str]) -> None:
        """
        Show the job's rows as they arrive on ``stream``, until it ends.
        """
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
            rows = step_rows(reader)
        self._console.print(self._table(rows))
        self._tell_costs(Costs(folder / STORE).refresh())
        everything = window_objects(folder)
        ready = [window for window in everything if window["state"] == names.State.READY]
        windows = [window for window in ready if window["artifact"]]
        latest = folder.parent / "latest"
        newest = latest.exists() and latest.resolve() == folder.resolve()
        self._say(f"{plural(len(windows), 'recording')} in {near(str(latest if newest else folder))}")
        for window in windows:
            place = f"{step_name(window['step'], window['last_step'])}, {process_name(window['role'], window['rank'])}"
            self._say(f"  {place}: {near(window['artifact'])} ({size(window['bytes'])})")
        if gone := len(ready) - len(windows):
            self._say(f"{plural(gone, 'recording')} removed, as {names.KEEP_SECONDS} and {names.KEEP_BYTES} say")
        unmet = [text for text in outcomes(everything) if not text.endswith(TOLD)]
        if unmet:
            self._say(f"and {', '.join(unmet)}")
        if steps := missed_steps(folder):
            self._say(steps)
        if any(window["artifact"].endswith(KINETO) for window in windows):
            self._say("open one in Perfetto (ui.perfetto.dev) or chrome://tracing; it stays on this machine")
        which = "" if newest else f" --run {folder.name}"
        step = windows[0]["step"] if windows else 1
        program = near(str(Path(sys.executable).with_name("stepscope")))
        more = ["windows", *(f"show {window['window']}" for window in windows[:1]), f"spans --step {step}"]
        more += [f"merge --step {step}"] if windows else []
        self._say("more: " + ", ".join(f"{program} {command}{which}" for command in more))

    def _tell_costs(self, estimates: Mapping[str, Estimate]) -> None:
        for role, item in estimates.items():
            self._say(f"overhead of {glance.overhead(role, item.json())}")
        if any(item.ratio is None for item in estimates.values()):
            self._say("a run as short as this rarely gives a figure: one window needs 38 unprofiled steps")

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)

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
