"""
What ``stepscope merge`` says it has done, and what is missing, as text for a person.

Pure.
"""

from collections.abc import Iterator
from pathlib import Path

from stepscope_sidecar.labels import size, step_name
from stepscope_sidecar.timeline.merging import Merged

MAX_NAMED = 5
"""Processes that a line names, of those that lack the same."""

VIEWERS = "open it in https://ui.perfetto.dev, https://www.speedscope.app or chrome://tracing"


def lines(merged: Merged) -> Iterator[str]:
    """
    What is in the file.
    """
    yield f"{step_name(merged.step)}: {merged.path} ({size(merged.path.stat().st_size)})"
    processes = "1 process" if merged.processes == 1 else f"{merged.processes} processes"
    yield f"spans       {merged.spans} of {processes}, {merged.samples} arrows to training"
    for told in merged.recordings:
        yield f"recording   {told}"
    if merged.launches:
        yield f"launches    {merged.launches} arrows from calls to devices"
    yield VIEWERS


def missing(merged: Merged) -> Iterator[str]:
    """
    What is not in it, or not as it should be; those that lack the same in one line.
    """
    found: dict[tuple[bool, str], list[str]] = {}
    for one in merged.missing:
        found.setdefault((one.absent, one.why), []).append(one.process)
    for (absent, why), processes in found.items():
        more = len(processes) - MAX_NAMED
        named = ", ".join(processes[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        yield f"{'not in it' if absent else 'note'}: {named}: {why}"


def file_name(folder: Path, step: int) -> str:
    """
    What the file is called unless that is said.
    """
    return f"{folder.name}-step-{step:06d}.json.gz"
