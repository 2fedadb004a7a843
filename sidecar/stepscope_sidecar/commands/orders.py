"""
Commands that tell a running job's sidecar what to do.
"""

from typing import Annotated, Any

import typer

from stepscope import ids, names
from stepscope.selection import Selection
from stepscope.settings import read
from stepscope_sidecar.commands.runs import CommandError, RunOption, attempt_folder, call
from stepscope_sidecar.labels import plural, some
from stepscope_sidecar.screen import say


def profile(
    steps: Annotated[str, typer.Option("--steps", help="The new selection, in the grammar of STEPSCOPE_STEPS.")] = "",
    attach: Annotated[
        int, typer.Option("--attach", metavar="PID", help="Record this process too, one that never imported stepscope.")
    ] = 0,
    detach: Annotated[
        int, typer.Option("--detach", metavar="PID", help="Record this process, attached to before, no more.")
    ] = 0,
    beside: Annotated[
        str,
        typer.Option("--with", metavar="ROLE-RANK", help="Whose windows it is recorded in: trainer-0, for example."),
    ] = "",
    tool: Annotated[str, typer.Option("--tool", help="What records it.")] = names.Tool.PY_SPY.value,
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="ID", help="The device it works on, as init(device_ids=) has it; repeatable."),
    ] = None,
    run: RunOption = "latest",
) -> None:
    """
    Change which steps of a running job are recorded. Also takes a `stop` back.

    With --attach and --with, a process beside the job is recorded while the window of a registered one is open; with
    --detach no more.
    """
    if not steps and not attach and not detach:
        raise CommandError(
            "say which steps: --steps 5,8-9; or which process to attach to: --attach PID --with trainer-0, or to detach"
            " from: --detach PID"
        )
    if attach and detach:
        raise CommandError("--attach and --detach are two orders: give one after the other")
    if bool(attach) != bool(beside):
        raise CommandError("--attach PID and --with ROLE-RANK go together: a process is recorded in another's windows")
    Selection.parse(steps)
    folder = attempt_folder(read(), run)
    if attach:
        start = ids.process_start(attach)
        if not start:
            raise CommandError(f"no process {attach} on this machine")
        order = {"pid": attach, "process_start": start, "with": beside, "tool": tool, "devices": device or []}
        found = call(folder, "/api/attach", order)
        selected = steps or found.get("selection") or "none yet; name some with --steps"
        typer.echo(f"pid {attach} is recorded by {tool} in the windows of {beside}; selected steps: {selected}")
        _warn(found)
        if found.get("stopped") and not steps:
            typer.echo("warning: all recording is stopped; `stepscope profile --steps ...` takes that back", err=True)
    if detach:
        found = call(folder, "/api/attach", {"pid": detach, "detach": True})
        typer.echo(f"pid {detach} is recorded by {found.get('tool', 'nothing')} no more")
    if not steps:
        return
    found = call(folder, "/api/profile", {"steps": steps})
    typer.echo(f"selection is now {found.get('selection', steps)!r} (revision {found.get('revision', '?')})")
    _tell_of_nodes(found)
    _warn(found)


def _tell_of_nodes(found: dict[str, Any]) -> None:
    """
    Say whom an order reaches, where other nodes report to the sidecar that got it.
    """
    nodes = found.get("nodes")
    if isinstance(nodes, list) and nodes:
        say([f"for node {found.get('node', '?')} now, within seconds for {some(nodes)}; see `stepscope status`"])


def _warn(found: dict[str, Any]) -> None:
    warnings = found.get("warnings")
    for warning in warnings if isinstance(warnings, list) else []:
        say([f"warning: {warning}"], err=True)


def stop(run: RunOption = "latest") -> None:
    """
    Stop all recording of a running job now, until `profile`.
    """
    found = call(attempt_folder(read(), run), "/api/stop", {})
    typer.echo(f"stopped; {_open(int(found.get('windows_open', 0)))} told to close")
    _tell_of_nodes(found)


def _open(number: int) -> str:
    return f"{plural(number, 'open window')} {'was' if number == 1 else 'were'}"
