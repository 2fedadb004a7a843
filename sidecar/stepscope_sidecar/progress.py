"""
The demo on a terminal: a row a step while it runs, the table of the whole at the end.

Reads the job's lines and, at the end, the store.
"""

import json
import sys
from pathlib import Path
from typing import IO, Any

from rich.live import Live
from rich.table import Table

from stepscope import names
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.render import STORE, WEIGHTS, console, near, size, step_cells, step_name, window_objects
from stepscope_sidecar.steptable import StepRow, step_rows


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
            steps = step_rows(reader)
        self._console.print(self._table(steps))
        windows = [window for window in window_objects(folder) if window["state"] == names.State.READY]
        latest = folder.parent / "latest"
        newest = latest.exists() and latest.resolve() == folder.resolve()
        self._console.print(f"{len(windows)} recordings in {near(str(latest if newest else folder))}")
        for window in windows:
            place = f"{step_name(window['step'])}, {window['role']} {window['rank']}"
            self._console.print(f"  {place}: {near(window['artifact'])} ({size(window['bytes'])})", soft_wrap=True)
        if windows:
            self._console.print("open one in Perfetto (ui.perfetto.dev) or chrome://tracing; it stays on this machine")
        which = "" if newest else f" --run {folder.name}"
        step = windows[0]["step"] if windows else 1
        program = near(str(Path(sys.executable).with_name("stepscope")))
        self._console.print(f"more: {program} windows{which}, {program} spans --step {step}{which}")

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
