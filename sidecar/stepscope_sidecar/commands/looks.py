"""
Commands that show a run: from its store, with and without a running sidecar.
"""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from stepscope.settings import read
from stepscope_sidecar import addressee, glance, render, standing, windowlist
from stepscope_sidecar.commands.runs import CommandError, JsonOption, RunOption, attempt_folder
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.reckoned import Reckoned
from stepscope_sidecar.screen import Screen, say
from stepscope_sidecar.token import headers


def status(
    run: RunOption = "latest",
    as_json: JsonOption = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on showing it until Ctrl-C; without a terminal, a block per change.")
    ] = False,
) -> None:
    """
    Show a run: version in force, selection, windows, processes, what profiling cost, and whether its sidecar answers.
    """
    settings = read()
    folder = attempt_folder(settings, run)
    if watch:
        _watch(folder, headers(settings), as_json=as_json)
        return
    found = standing.status(folder, headers=headers(settings), estimates=Costs(folder / render.STORE).refresh)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        say(glance.lines(found, name=render.run_name(folder)))


def _watch(folder: Path, shown: Mapping[str, str], *, as_json: bool) -> None:
    from stepscope_sidecar.watch import watch

    if as_json:
        raise CommandError("--watch is for people; programs ask `stepscope status --json` again, or GET /api/status")
    never, reckoned = threading.Event(), Reckoned(folder / render.STORE)
    watch(
        lambda: standing.status(folder, headers=shown, estimates=reckoned.estimates, deadline=addressee.DEADLINE),
        name=render.run_name(folder),
        console=Screen(highlight=False),
        pause=never.wait,
    )


def windows(run: RunOption = "latest", as_json: JsonOption = False) -> None:
    """
    List every window that was asked for: its step, process, state, reason and recording.
    """
    folder = attempt_folder(read(), run)
    rows = render.window_objects(folder)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        windowlist.print_windows(rows, folder)
        windowlist.print_missing(rows, folder)


def show(
    window: Annotated[
        str, typer.Argument(metavar="WINDOW", help="Its id, or the beginning of it; without, the last recording.")
    ] = "",
    run: RunOption = "latest",
    as_json: JsonOption = False,
) -> None:
    """
    Show what a recording holds, in numbers, and what differs from the one before it of the same process.

    Time of devices, kernels, operators, collectives, launches and spans; what held the step up; what is missing.
    """
    from stepscope_sidecar import sheet
    from stepscope_sidecar.show import shown

    found = shown(attempt_folder(read(), run) / render.STORE, window)
    if as_json:
        typer.echo(json.dumps(found.json(), indent=2))
    else:
        say(sheet.lines(found, near=Path.cwd()))


def spans(
    run: RunOption = "latest",
    as_json: JsonOption = False,
    step: Annotated[int | None, typer.Option("--step", help="Only the spans of this step.")] = None,
) -> None:
    """
    List the spans of a run, the sidecar's own included.
    """
    folder = attempt_folder(read(), run)
    rows = render.span_objects(folder, step=step)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        render.print_spans(rows)
