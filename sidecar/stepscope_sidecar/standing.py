"""
How a run stands: what its sidecar says of itself or, where none answers, what can be read off its store.

Decides nothing. How that is told to a person is ``glance``'s.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepscope.names import State
from stepscope_sidecar import addressee, orphans, schema
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.windows import LEASED

Estimates = Callable[[], Mapping[str, Estimate] | None]
"""What profiling cost by role; None while that is being reckoned."""

OPEN_KEYS = (*("window", "node", "step", "last_step", "role", "rank", "pid", "tool", "state", "opened_unix_ns"),)
"""What is said of a window that is open, beside its age."""


def status(
    folder: Path, *, headers: Mapping[str, str], estimates: Estimates = dict, deadline: float | None = None
) -> dict[str, Any]:
    """
    What the sidecar says to whoever shows it ``headers``, or, where it does not answer within ``deadline`` seconds,
    what the store of the run in ``folder`` says; ``estimates`` are those of that store.
    """
    answer = addressee.ask(folder, shown=headers, deadline=deadline)
    if answer.status is not None:
        return {"live": True, "folder": str(folder), "http": answer.url, **answer.status}
    kept = _kept(folder)
    reckoned = estimates()
    return {
        "live": answer.guarded,
        "demands_token": answer.guarded,
        "folder": str(folder),
        **kept,
        "overhead_estimates": None if reckoned is None else {role: item.json() for role, item in reckoned.items()},
    }


def _kept(folder: Path) -> dict[str, Any]:
    with open_reader(folder / schema.FILE) as reader:
        processes, revisions = reader.processes(), reader.selections()
        own, elsewhere = orphans.shown(reader.windows(), attended=orphans.attended(folder)), reader.elsewhere()
    last, now = revisions[-1] if revisions else None, time.time_ns()
    states: dict[str, int] = {}
    opened = []
    for window in [*own, *elsewhere]:
        states[window.state] = states.get(window.state, 0) + 1
        if State(window.state) in LEASED:
            since = window.opened_unix_ns or window.asked_unix_ns
            opened.append(
                {
                    **{key: getattr(window, key) for key in OPEN_KEYS},
                    "age_seconds": (now - since) / 1e9 if since else None,
                }
            )
    return {
        "param_version": max((row.param_version for row in processes), default=0),
        "selection": last.text if last else "",
        "stopped": last.stopped if last else False,
        "stopped_by": last.source if last and last.stopped else "",
        "processes": [
            {
                "role": row.role,
                "rank": row.rank,
                "pid": row.pid,
                "alive": orphans.lives(row),
                "param_version": row.param_version,
                "step": row.entered_step,
            }
            for row in processes
        ],
        "windows": states,
        "open": opened,
    }
