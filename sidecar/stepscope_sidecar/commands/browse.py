"""
The command that opens a window in the browser.
"""

import threading
import webbrowser
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from stepscope import names
from stepscope.settings import read
from stepscope_sidecar import render, standing
from stepscope_sidecar.commands.runs import CommandError, RunOption, attempt_folder
from stepscope_sidecar.lookup import chosen
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.token import headers


def open_window(
    window: Annotated[str, typer.Argument(metavar="WINDOW", help="Its id, or the beginning of it.")],
    run: RunOption = "latest",
    print_only: Annotated[bool, typer.Option("--print", help="Print the address, open no browser.")] = False,
) -> None:
    """
    Open the page of a window in the browser, and print its address.

    Where the run's sidecar has ended, the run is served from its store until Ctrl-C, as by `stepscope serve`.
    """
    from stepscope_sidecar.serve import serve

    settings = read()
    folder = attempt_folder(settings, run)
    path = f"/windows/{quote(_named(folder / render.STORE, window), safe='')}"
    found = standing.status(folder, headers=headers(settings))
    if found.get("demands_token"):
        raise CommandError(
            f"the sidecar of {folder.name} demands its token: set {names.TOKEN_FILE} to the file that holds it"
        )
    if found["live"]:
        _show(f"{found['http']}{path}", print_only=print_only)
        return
    serve(folder / render.STORE, settings, ready=lambda url: _served(f"{url}{path}", print_only=print_only))


def _named(store: Path, wanted: str) -> str:
    if not wanted:
        raise CommandError("which window? Give its id or the beginning of it; `stepscope windows` lists them")
    with open_reader(store) as reader:
        return chosen([*reader.windows(), *reader.elsewhere()], wanted).window


def _served(url: str, *, print_only: bool) -> None:
    typer.echo("the run's sidecar has ended, so it is served from here; Ctrl-C ends this", err=True)
    typer.echo(url)
    if not print_only:
        # A browser of the terminal is waited for, and what it waits for is served by whoever calls. Nobody waits for it
        # at the end.
        threading.Thread(target=_browse, args=(url,), name="browser", daemon=True).start()


def _show(url: str, *, print_only: bool) -> None:
    typer.echo(url)
    if not print_only:
        _browse(url)


def _browse(url: str) -> None:
    if not webbrowser.open(url):
        typer.echo("no browser was found here; open the address yourself", err=True)
