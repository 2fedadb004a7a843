"""
The command line, ``stepscope``.

Owns which commands there are, in which order they are listed, and exit codes. What they do is in ``commands``; tables
and progress are in ``render``, the child processes in ``supervise``. All but ``profile`` and ``stop`` read a run's
store directly, and so work with and without a running sidecar.
"""

import errno
import os
import signal
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from stepscope.errors import StepscopeError
from stepscope_sidecar.commands import browse, files, jobs, looks, machine, orders
from stepscope_sidecar.screen import warn

app = typer.Typer(
    name="stepscope",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

EXIT_USAGE = 2
"""What a shell tool returns for a wrong argument or setting."""

EXIT_UNREAD = 128 + signal.SIGPIPE
"""What a shell says of a tool whose output nobody reads any more."""

EXIT_UNWRITTEN = 1
"""What shell tools return whose output does not fit where it goes."""

UNWRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of writing; EIO is a terminal that has gone."""


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


for _started in (jobs.demo, jobs.run):
    app.command(context_settings=jobs.PASS_ON)(_started)
for _command in (
    *(jobs.sidecar, looks.status, looks.windows, looks.show, looks.spans),
    *(orders.profile, orders.stop, files.merge, files.serve, files.export, machine.check),
):
    app.command()(_command)
app.command("open")(browse.open_window)


def main() -> None:
    """
    The entry point: errors of ours are one line and exit code 2, never a stack trace. Where the reader of our output
    (head, say) has gone, the command ends without a word.
    """
    try:
        app()
    except StepscopeError as error:
        warn(str(error))
        raise SystemExit(EXIT_USAGE) from None
    except BrokenPipeError:
        raise SystemExit(_unread()) from None
    except OSError as error:
        if error.errno not in UNWRITTEN or error.filename is not None:
            raise
        raise SystemExit(_unwritten(error)) from None
    except SystemExit as ended:
        # typer and rich, each for itself, make an exit of it whose code says that something was wrong.
        if isinstance(ended.__context__, BrokenPipeError):
            raise SystemExit(_unread()) from None
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            unread = _unread()
            raise SystemExit(ended.code or unread) from None
        except OSError as error:
            unwritten = _unwritten(error)
            raise SystemExit(ended.code or unwritten) from None
        raise


def _unread() -> int:
    """
    Have what is still to be written go nowhere, so that the interpreter ends quietly; the exit code.
    """
    _nowhere()
    return EXIT_UNREAD


def _unwritten(error: OSError) -> int:
    """
    As :func:`_unread`, where what we print does not fit: that is said.
    """
    _nowhere()
    warn(f"the output cannot be written: {error.strerror}")
    return EXIT_UNWRITTEN


def _nowhere() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


if __name__ == "__main__":
    main()
