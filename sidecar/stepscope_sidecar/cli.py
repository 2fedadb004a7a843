"""
The command line, ``stepscope``.

Owns commands and exit codes; tables and progress are in ``render``, the child processes in ``supervise``. Reads a
run's store directly, so that everything but ``profile`` and ``stop`` works with and without a running sidecar.
"""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from stepscope import names
from stepscope.errors import StepscopeError
from stepscope.selection import Selection
from stepscope.settings import Settings, read
from stepscope_sidecar import render, supervise
from stepscope_sidecar.progress import Progress

app = typer.Typer(
    name="stepscope",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

EXIT_USAGE = 2
"""What a shell tool returns for a wrong argument or setting."""

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
    url = supervise.endpoints(folder).get("http")
    if not url:
        raise CommandError(f"no sidecar has run for {folder.name}")
    try:
        answer = httpx.post(f"{url}{path}", json=body, timeout=10.0, trust_env=False, headers=_token())
    except (httpx.HTTPError, httpx.InvalidURL):
        others = [name for name in live(folder.parent) if name != folder.name]
        hint = f"name a live run with --run: {', '.join(others)}" if others else "has the run ended?"
        raise CommandError(f"the sidecar of {folder.name} does not answer at {url}; {hint}") from None
    try:
        found = answer.json()
    except ValueError:
        found = {}
    if answer.is_error:
        raise CommandError(str(found.get("error") or f"the sidecar refused: HTTP {answer.status_code}"))
    return found if isinstance(found, dict) else {}


def live(directory: Path) -> list[str]:
    """
    The folders of the runs in ``directory`` whose sidecars answer.
    """
    found = []
    for path in sorted(directory.glob("*/sidecar.json")):
        url = supervise.endpoints(path.parent).get("http")
        if not path.parent.is_symlink() and url and supervise.unfinished(str(url)).reached:
            found.append(path.parent.name)
    return found


def _token() -> dict[str, str]:
    token_file = read().token_file
    return {"Authorization": f"Bearer {token_file.read_text().strip()}"} if token_file else {}


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stepscope {version('stepscope')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """
    Profile exactly the policy versions you name, in every process of a fully-asynchronous RL run.
    """


@app.command(context_settings=PASS_ON)
def demo(context: typer.Context) -> None:
    """
    Run the reference job, fully-asynchronous GRPO on Ray, and show what was recorded.

    Arguments go to the job: --steps 6 --rollouters 4, for example.
    """
    env = supervise.environment_for("demo")
    folder = None if supervise.off(env) else read(env).attempt_folder
    progress = Progress()
    progress.open("nothing: stepscope is disabled" if folder is None else render.selected(read(env)))
    code = supervise.run_beside(
        [sys.executable, "-m", "stepscope_trainer.job", "--json", *context.args],
        env=env,
        warn=render.warn,
        lines=progress.follow,
    )
    if code == 0:
        progress.close(folder)
    raise typer.Exit(code)


@app.command(context_settings=PASS_ON)
def run(context: typer.Context) -> None:
    """
    Run a command with a sidecar beside it: stepscope run -- python train.py. Returns the command's exit code.
    """
    command = context.args[1:] if context.args[:1] == ["--"] else context.args
    if not command:
        raise CommandError("nothing to run; write: stepscope run -- python train.py")
    env = supervise.environment_for("run")
    code = supervise.run_beside(command, env=env, warn=render.warn, started=render.announce)
    if not supervise.off(env):
        render.conclude(read(env).attempt_folder)
    raise typer.Exit(code)


@app.command()
def sidecar() -> None:
    """
    Run a sidecar in the foreground, for a container of its own. OTLP is on ports 4318 and 4317 unless set.
    """
    env = dict(os.environ)
    env.setdefault(names.OTLP_HTTP, "127.0.0.1:4318")
    env.setdefault(names.OTLP_GRPC, "127.0.0.1:4317")
    if supervise.off(env):
        raise CommandError(f"{names.DISABLED} is set: nothing is started")
    env = supervise.environment_for("run", base=env)
    os.execve(sys.executable, [sys.executable, "-m", "stepscope_sidecar", "--attended", "yes"], env)  # noqa: S606


@app.command()
def status(run: RunOption = "latest", as_json: JsonOption = False) -> None:
    """
    Show a run: version in force, selection, processes, windows, and whether its sidecar answers.
    """
    folder = attempt_folder(read(), run)
    found = render.status(folder)
    typer.echo(json.dumps(found, indent=2) if as_json else render.status_text(found))


@app.command()
def windows(run: RunOption = "latest", as_json: JsonOption = False) -> None:
    """
    List every window that was asked for: its step, process, state, reason and recording.
    """
    folder = attempt_folder(read(), run)
    rows = render.window_objects(folder)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        render.print_windows(rows, folder)


@app.command()
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


@app.command()
def profile(
    steps: Annotated[str, typer.Option("--steps", help="The new selection, in the grammar of STEPSCOPE_STEPS.")],
    run: RunOption = "latest",
) -> None:
    """
    Change which steps of a running job are recorded. Also takes a `stop` back.
    """
    Selection.parse(steps)
    found = call(attempt_folder(read(), run), "/api/profile", {"steps": steps})
    typer.echo(f"selection is now {found.get('selection', steps)!r} (revision {found.get('revision', '?')})")


@app.command()
def stop(run: RunOption = "latest") -> None:
    """
    Stop all recording of a running job now, until `profile`.
    """
    found = call(attempt_folder(read(), run), "/api/stop", {})
    typer.echo(f"stopped; {found.get('windows_open', 0)} open windows were told to close")


@app.command()
def check(as_json: JsonOption = False) -> None:
    """
    Say what can be profiled here, and for what cannot: why.
    """
    from stepscope_sidecar.check import capabilities

    found = capabilities(read())
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        render.print_capabilities(found)


def main() -> None:
    """
    The entry point: errors of ours are one line and exit code 2, never a stack trace.
    """
    try:
        app()
    except StepscopeError as error:
        sys.stderr.write(f"stepscope: {error}\n")
        raise SystemExit(EXIT_USAGE) from None
    except BrokenPipeError:
        # The reader of our output (head, say) has gone; that is no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
