"""
Which run a command is about, and how its sidecar is asked.
"""

from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from stepscope import names
from stepscope.errors import StepscopeError
from stepscope.settings import Settings, read
from stepscope_sidecar import addressee, lifecycle, orphans
from stepscope_sidecar.token import headers

RunOption = Annotated[
    str, typer.Option("--run", help="Which run: a folder in STEPSCOPE_DIR, or the start of its name (the newest such).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


class CommandError(StepscopeError):
    """
    A command cannot do what it was asked; the message says why.
    """


def attempt_folder(settings: Settings, run: str) -> Path:
    """
    The folder of the run that ``run`` names, of its newest attempt where several match.

    Raises:
        CommandError: there is none.
    """
    directory = settings.directory.absolute()
    if (directory / run).is_dir():
        return (directory / run).resolve()
    matching = sorted(
        (path for path in directory.glob("*") if path.name.startswith(run) and path.is_dir() and not path.is_symlink()),
        key=lambda path: path.stat().st_mtime,
    )
    if not matching:
        raise CommandError(f"no run {run!r} in {directory}; name its folder with --run, or set {names.DIR}")
    return matching[-1]


def call(folder: Path, path: str, body: dict[str, object]) -> dict[str, Any]:
    """
    Ask the sidecar of the run in ``folder``.

    Raises:
        CommandError: it does not run, or refuses.
    """
    url = addressee.url(folder)
    if not url:
        raise CommandError(f"no sidecar has run for {folder.name}")
    shown = addressee.headers(folder, headers(read()))
    try:
        answer = httpx.post(f"{url}{path}", json=body, timeout=10.0, trust_env=False, headers=shown)
    except (httpx.HTTPError, httpx.InvalidURL):
        raise CommandError(f"the sidecar of {folder.name} does not answer at {url}; {_hint(folder)}") from None
    try:
        found = answer.json()
    except ValueError:
        found = None
    found = found if isinstance(found, dict) else {}
    if answer.status_code == httpx.codes.MISDIRECTED_REQUEST:
        why = found.get("error") or "another answers there"
        raise CommandError(f"the sidecar of {folder.name} does not answer at {url}: {why}; {_hint(folder)}")
    if answer.status_code == httpx.codes.UNAUTHORIZED and not orphans.attended(folder):
        raise CommandError(
            f"what answers at {url} demands a token, and nothing here shows that it is the sidecar of {folder.name}: if"
            f" it is, set {names.TOKEN_FILE} to the file that holds its token"
        )
    if answer.is_error:
        raise CommandError(str(found.get("error") or f"the sidecar refused: HTTP {answer.status_code}"))
    return found


def _hint(folder: Path) -> str:
    others = [name for name in live(folder.parent) if name != folder.name]
    return f"name a live run with --run: {', '.join(others)}" if others else "has the run ended?"


def live(directory: Path) -> list[str]:
    """
    The folders of the runs in ``directory`` whose sidecars answer.
    """
    found, shown = [], headers(read())
    for path in sorted(directory.glob(f"*/{lifecycle.SIDECAR_FILE}")):
        if not path.parent.is_symlink() and addressee.ask(path.parent, shown=shown).status is not None:
            found.append(path.parent.name)
    return found
