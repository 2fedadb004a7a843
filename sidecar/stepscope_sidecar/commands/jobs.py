"""
Commands that start something: the reference job, a user's own, a sidecar.
"""

import os
import sys

import typer

from stepscope import names
from stepscope.settings import read
from stepscope_sidecar import nodefolder, render, supervise
from stepscope_sidecar.commands.runs import CommandError
from stepscope_sidecar.progress import Progress

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Of commands whose arguments are for the command that they start."""


def demo(context: typer.Context) -> None:
    """
    Run the reference job, fully-asynchronous GRPO on Ray, and show what was recorded.

    Arguments go to the job: --steps 6 --rollouters 4, for example.
    """
    env = supervise.environment_for("demo")
    folder = None if supervise.off(env) else nodefolder.settle(read(env)).attempt_folder
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
        render.conclude(nodefolder.settle(read(env)).attempt_folder)
    raise typer.Exit(code)


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
