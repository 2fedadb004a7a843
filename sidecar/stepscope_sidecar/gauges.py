"""
The gauges of the run's processes and windows on this node, from what the controller holds.

Pure. Windows of other nodes are in the exposition of the sidecar that is theirs.
"""

from collections.abc import Iterable, Mapping

from stepscope_sidecar.metrics import Gauge
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.windows import Window


def by_role(name: str, values: Mapping[str, float]) -> list[Gauge]:
    """
    One series of ``name`` for each role.
    """
    return [Gauge(name=name, value=value, labels={"role": role}) for role, value in values.items()]


def overheads(estimates: Mapping[str, Estimate]) -> list[Gauge]:
    """
    What profiling cost each role, as far as it is known.
    """
    found = []
    for role, item in estimates.items():
        for name, ratio in (
            ("stepscope_profiling_overhead_ratio", item.ratio),
            ("stepscope_profiling_overhead_lower_bound_ratio", item.lower_bound),
            ("stepscope_profiling_wall_overhead_ratio", item.wall_ratio),
        ):
            if ratio is not None:
                found.append(Gauge(name=name, value=ratio, labels={"role": role}))
    return found


def open_ages(windows: Iterable[Window], *, roles: Iterable[str], unix_ns: int) -> dict[str, float]:
    """
    Seconds since the oldest window that may be recording now was opened, by role; 0 with none.
    """
    found = dict.fromkeys(roles, 0.0)
    for window in windows:
        if window.leased and (since := _since(window)):
            found[window.role] = max(found.get(window.role, 0.0), (unix_ns - since) / 1e9)
    return found


def open_windows(windows: Iterable[Window], *, unix_ns: int) -> list[dict[str, object]]:
    """
    The windows that may be recording now, oldest first, each with its process and its age.
    """
    found = [window for window in windows if window.leased]
    found.sort(key=_since)
    return [
        {
            "window": window.window,
            "step": window.step,
            "last_step": max(window.step, window.last_step),
            "role": window.role,
            "rank": window.rank,
            "pid": window.pid,
            "tool": window.tool,
            "state": window.state.value,
            "opened_unix_ns": window.opened_unix_ns,
            "age_seconds": (unix_ns - _since(window)) / 1e9 if _since(window) else None,
        }
        for window in found
    ]


def _since(window: Window) -> int:
    return window.opened_unix_ns or window.asked_unix_ns


def start_skews(windows: Iterable[Window]) -> dict[str, float]:
    """
    Seconds between the first and the last start among the ranks of a role, in the last step that several recorded.
    """
    starts: dict[str, dict[int, dict[int, int]]] = {}
    for window in windows:
        if window.opened_unix_ns and not window.beside:
            of_step = starts.setdefault(window.role, {}).setdefault(window.step, {})
            of_step[window.rank] = min(of_step.get(window.rank, window.opened_unix_ns), window.opened_unix_ns)
    found: dict[str, float] = {}
    for role, steps in starts.items():
        several = [step for step, ranks in steps.items() if len(ranks) > 1]
        if several:
            at = steps[max(several)].values()
            found[role] = (max(at) - min(at)) / 1e9
    return found
