"""
A run's status in lines for a person: what ``stepscope status`` prints, and what ``--watch`` draws again and again.

Pure. What the status is, ``standing`` finds out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepscope import names
from stepscope_sidecar.labels import process_name, seconds, some, step_name, step_numbers, unattended
from stepscope_sidecar.screen import printable

MAX_PROCESSES = 12
"""Processes that are named in brief: a terminal has 24 lines, and those of one role do mostly the same."""

Status = Mapping[str, Any]


def lines(found: Status, *, name: str, was_live: bool = False, brief: bool = False, ages: bool = True) -> list[str]:
    """
    ``found``, the status of the run ``name``; ``was_live``: its sidecar has answered before, ``brief``: what fits on a
    screen, ``ages``: how long windows have been open, which is never the same again.
    """
    version, steps = found.get("param_version", 0), found.get("selection") or "none"
    # A sidecar that demands its token is there, and tells nothing: what is known is from the store.
    answered = bool(found.get("live")) and not found.get("demands_token")
    told = [
        f"{name}: {_state(found, was_live=was_live)}",
        *([f"page       {found['http']}"] if found.get("http") else []),
        f"version    {step_name(version + 1)}" if answered else f"version    v{version}",
        f"selection  {steps}{_stopped(found)}",
        f"windows    {_counted(found.get('windows') or {})}",
        *_opened(found.get("open") or [], ages=ages),
        *_processes(found.get("processes") or [], live=answered, brief=brief),
        *(f"attached   pid {item['pid']} with {item['with']}: {item['tool']}" for item in found.get("attached") or []),
        *(f"missing    {role}: {one}" for role, items in (found.get("missing") or {}).items() for one in items),
        *_nodes(found),
        *_overhead(found.get("overhead_estimates", {})),
        *_warnings(found.get("warnings") or [], brief=brief),
    ]
    return [printable(line) for line in told]


def overhead(role: str, item: Mapping[str, Any]) -> str:
    """
    What profiling cost ``role``, or why that is unknown.
    """
    ratio = item.get("ratio")
    return f"{role}: {ratio:.1%}" if ratio is not None else f"{role}: unknown: {item.get('unknown') or 'not said'}"


def _state(found: Status, *, was_live: bool) -> str:
    if found.get("demands_token"):
        return (
            f"running; its sidecar demands its token: set {names.TOKEN_FILE} to the file that holds it"
            " (this is from its store)"
        )
    if found.get("live"):
        return "running"
    return unattended(found.get("processes") or [], was_live=was_live)


def _process(process: Mapping[str, Any], *, pid: bool) -> str:
    return process_name(
        str(process.get("role")), int(process.get("rank") or 0), pid=process.get("pid") if pid else None
    )


def _stopped(found: Status) -> str:
    if not found.get("stopped"):
        return ""
    return f", stopped by {found['stopped_by']}" if found.get("stopped_by") else ", stopped"


def _counted(states: Mapping[str, int]) -> str:
    # In the order in which a window goes through them, so that no number changes its place.
    order = [state.value for state in names.State]
    known = sorted(states, key=lambda state: order.index(state) if state in order else len(order))
    return ", ".join(f"{states[state]} {state}" for state in known) or "none"


def _opened(windows: Sequence[Mapping[str, Any]], *, ages: bool) -> Iterator[str]:
    for window in windows:
        age = window.get("age_seconds")
        since = "" if age is None or not ages else f" for {seconds(age)}"
        step = step_numbers(window.get("step") or 0, window.get("last_step") or 0)
        where = f" on {window['node']}" if window.get("node") else ""
        state = "" if window.get("state") == names.State.RECORDING else f" ({window.get('state')})"
        yield f"open       {_process(window, pid=True)}{where}: step {step}, {window.get('tool')}{since}{state}"


def _processes(processes: Sequence[Mapping[str, Any]], *, live: bool, brief: bool) -> Iterator[str]:
    for process in processes[: MAX_PROCESSES if brief else None]:
        at = step_name(process["step"]) if process.get("step") else "before its first step"
        if process.get("alive") is None and not live:
            at += ", of another node"
        elif not process.get("alive"):
            at = "ended"
        elif not process.get("connected", not live):
            at += ", not connected"
        yield f"process    {_process(process, pid=not brief)}: {at}"
    if brief and (more := len(processes) - MAX_PROCESSES) > 0:
        yield f"           and {more} more"


def _nodes(found: Status) -> Iterator[str]:
    if reports := found.get("reports"):
        refused = f", refused: {reports['refused']}" if reports.get("refused") else ""
        yield f"upstream   reports {reports.get('state')}, {reports.get('unsent', 0)} unsent{refused}"
    if found.get("artifacts_to_copy"):
        yield f"copies     {found['artifacts_to_copy']} to make"
    if ordered := found.get("ordered"):
        reached, waiting = some(ordered.get("reached") or []), some(ordered.get("waiting") or [])
        yield f"ordered    {ordered.get('order')}: obeyed by {reached or 'none'}, not heard of by {waiting or 'none'}"
    if pending := found.get("spans_pending"):
        yield f"spans      {pending} not forwarded yet"


def _overhead(estimates: Mapping[str, Mapping[str, Any]] | None) -> Iterator[str]:
    if estimates is None:
        yield "overhead   being reckoned"
        return
    for role, item in estimates.items():
        yield f"overhead   {overhead(role, item)}"


def _warnings(warnings: Sequence[str], *, brief: bool) -> Iterator[str]:
    if not brief:
        yield from (f"warning    {warning}" for warning in warnings)
    elif warnings:
        more = f" (and {len(warnings) - 1} before it)" if len(warnings) > 1 else ""
        yield f"last error {warnings[-1]}{more}"
