"""
Commands that hand a run on: served to a browser, as tables, as a timeline.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from stepscope import names
from stepscope.settings import read
from stepscope_sidecar import addressee, render
from stepscope_sidecar.commands.runs import RunOption, attempt_folder
from stepscope_sidecar.screen import say
from stepscope_sidecar.token import headers


def serve(
    run: RunOption = "latest",
    http: Annotated[str, typer.Option("--http", metavar="HOST:PORT", help="Where; port 0 takes a free one.")] = "",
) -> None:
    """
    Serve a run that has ended: its page, its API, its recordings, and Jaeger's query API for a trace view.
    """
    from stepscope_sidecar.serve import serve

    settings = read({**os.environ, names.HTTP: http}) if http else read()
    folder = attempt_folder(settings, run)
    serve(folder / render.STORE, settings, ready=lambda url: typer.echo(f"{folder.name} is at {url}; Ctrl-C ends this"))


def export(
    parquet: Annotated[Path, typer.Option("--parquet", metavar="DIR", help="The folder that the files go to.")],
    run: RunOption = "latest",
    table: Annotated[
        list[str] | None,
        typer.Option("--table", help="Which: spans, windows, samples or kernels; repeatable. Without it, all."),
    ] = None,
) -> None:
    """
    Write a run's spans, windows, samples and kernels as Parquet, for DuckDB, pandas or whatever reads it.
    """
    from stepscope_sidecar import data

    with data.open(attempt_folder(read(), run)) as found:
        for name, rows in found.to_parquet(parquet, tables=table or ()).items():
            empty = ": no recording holds work of a device" if name == "kernels" and not rows else ""
            typer.echo(f"{parquet / name}.parquet: {rows} rows{empty}")


def merge(
    step: Annotated[int, typer.Option("--step", metavar="STEP", help="Which step.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to; compressed if it ends in .gz. RUN-step-STEP.json.gz here."
        ),
    ] = None,
    run: RunOption = "latest",
) -> None:
    """
    Write one step as one timeline, for Perfetto: spans and recordings of all its processes, on one clock.

    What is missing is named in it, and here.
    """
    from stepscope_sidecar import timeline
    from stepscope_sidecar.copies import Copies
    from stepscope_sidecar.timeline import told

    settings = read()
    folder = attempt_folder(settings, run)
    shown = addressee.headers(folder, headers(settings))
    with Copies(addressee.url(folder), headers=shown) as copies:
        target = output or Path(told.file_name(folder, step))
        merged = timeline.merge(folder / render.STORE, step, target, fetch=copies.get)
    say(told.lines(merged))
    say(told.missing(merged), err=True)
