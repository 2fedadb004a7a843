"""
How steps, processes, times and sizes are written for a person: on the terminal and on the page alike.

Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

PHASES = ("open", "start", "stop", "export")
"""Of stall, as they come in a window."""

LISTED = 12
"""Names in one sentence: more are a wall of text."""


def step_numbers(step: int, last: int = 0) -> str:
    """
    A step, or those to ``last``.
    """
    return f"{step}-{last}" if last > step else str(step)


def step_cells(step: int, last: int = 0) -> tuple[str, str]:
    """
    A step as a table prints it, or those to ``last``: number, and which weights it works under and makes.
    """
    if last > step:
        return step_numbers(step, last), f"v{step - 1}-v{last - 1}, makes v{step}-v{last}"
    return step_numbers(step), f"v{step - 1}, makes v{step}"


def step_name(step: int, last: int = 0, *, partial: bool = False) -> str:
    """
    A step as every surface prints it, or those to ``last``; ``partial``: it makes no weights.
    """
    if last > step:
        return f"steps {step}-{last} (weights v{step - 1}-v{last - 1} in force, makes v{step}-v{last})"
    return f"step {step} (weights v{step - 1} in force, {'after the last update' if partial else f'makes v{step}'})"


def process_name(role: str, rank: int, *, pid: int | None = None) -> str:
    """
    A process, with ``pid`` where its role and rank may not say enough.
    """
    return f"{role} {rank}" if pid is None else f"{role} {rank} (pid {pid})"


def plural(number: int, noun: str) -> str:
    """
    So many of what ``noun`` is one of.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def in_phases(stalls: Mapping[str, float]) -> dict[str, float]:
    """
    Stall by phase, in the order in which the phases come.
    """
    return dict(sorted(stalls.items(), key=lambda item: PHASES.index(item[0]) if item[0] in PHASES else len(PHASES)))


def seconds(value: float) -> str:
    """
    ``value`` seconds.
    """
    return f"{value * 1000:.1f} ms" if abs(value) < 1 else f"{value:.2f} s"


def size(value: int) -> str:
    """
    ``value`` bytes.
    """
    number = float(value)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def duration(nanoseconds: int) -> str:
    """
    ``nanoseconds`` in a unit that suits them.
    """
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds} ns"


def some(names: Sequence[object]) -> str:
    """
    ``names`` in one sentence, of many the first ones.
    """
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(map(str, names[:LISTED])) + more


def unattended(processes: Sequence[Mapping[str, Any]], *, was_live: bool = False) -> str:
    """
    How a run stands whose sidecar is not there; ``was_live``: it has been.
    """
    head = f"{'its sidecar has gone' if was_live else 'no sidecar answers'}; this is from its store"
    # Whether the run goes on, a store does not say; the processes that it names may.
    living = [
        process_name(str(process.get("role")), int(process.get("rank") or 0), pid=process.get("pid"))
        for process in processes
        if process.get("alive")
    ]
    if living:
        return f"{head}; still alive here: {some(living)}"
    over = bool(processes) and all(process.get("alive") is False for process in processes)
    return f"{head}; all processes of this node have ended" if over else head
