"""
Reads recordings for a page, in a process of its own: what a window's holds, or a step as one timeline.

The child of ``digests``. A recording can be a gigabyte; reading it here keeps its memory and its time from the process
that serves, which has training beside it.
"""

import gc
import os
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepscope.errors import StepscopeError
from stepscope.paths import without_folders
from stepscope_sidecar import answers
from stepscope_sidecar.finalise import end_with
from stepscope_sidecar.sheet import measures
from stepscope_sidecar.show import Shown, shown
from stepscope_sidecar.timeline import merge

CPU_SECONDS = 300
"""A recording of a gigabyte takes half a minute; what takes so much longer is not waited for by anybody."""

NAMES = 15
"""Kernels, operators and spans on a page; ``stepscope show --json`` has all."""

MAX_NAME = 200
"""Characters of a name; kernels of templates have thousands."""

MAX_MEMORY = 4 << 30
"""Of address space: columns of a recording of a gigabyte take half of one, libraries some of the rest."""

NICE = 19
"""The lowest weight among ordinary processes."""

SPAN_PARTS = ("duration_ns", "operator_ns", "device_ns", "device_work")
"""What is added up over spans of one name."""


def digest(found: Shown) -> dict[str, object]:
    """
    What of ``found`` goes on a page: its numbers, and the names that come first.
    """
    told = found.json()
    recordings: Any = told["recordings"]
    return {
        "reason": without_folders(found.why),
        "recordings": [{**one, **_shortened(one)} for one in recordings],
        "difference": _difference(found),
    }


def _shortened(told: Mapping[str, Any]) -> dict[str, object]:
    cut: dict[str, object] = {}
    for part in ("kernels", "operators"):
        rows = [{**row, "name": _name(row["name"])} for row in told[part]["top"][:NAMES]]
        cut[part] = {**told[part], "top": rows}
    cut["collectives"] = [{**one, "name": _name(one["name"])} for one in told["collectives"][:NAMES]]
    cut["spans"] = _by_name(told["spans"])
    return cut


def _by_name(spans: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    sums: dict[str, Counter[str]] = {}
    for span in spans:
        found = sums.setdefault(_name(span["name"]), Counter())
        found["spans"] += 1
        for part in SPAN_PARTS:
            found[part] += span[part]
    listed = sorted(sums.items(), key=lambda item: (-item[1]["device_ns"], -item[1]["duration_ns"]))
    return [{"name": name, **found} for name, found in listed[:NAMES]]


def _difference(found: Shown) -> dict[str, object]:
    against = found.against
    row = against.window
    return {
        "window": row.window if row else "",
        "step": row.step if row else None,
        "reason": without_folders(against.why),
        "recordings": [
            {
                **one.json(),
                "measures": list(measures(one)),
                "names": len(one.changes),
                "changes": [{**change.json(), "name": _name(change.name)} for change in one.changes[:NAMES]],
            }
            for one in against.differences
        ],
    }


def _name(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def main(arguments: Sequence[str]) -> int:
    """
    ``DESCRIPTOR``, then ``show STORE WINDOW`` or ``merge STORE STEP TARGET``; the answer has ``error`` where it cannot
    be done.
    """
    end_with(os.getppid())
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    # Parsed events have no cycles; looking for some takes a fifth of the time.
    gc.disable()
    descriptor, order, store, which, *target = arguments
    told: dict[str, object]
    try:
        if order == "show":
            told = digest(shown(Path(store), which))
        else:
            merged = merge(Path(store), int(which), Path(target[0]))
            told = {"missing": [f"{one.process}: {without_folders(one.why)}" for one in merged.missing]}
    except (StepscopeError, OSError, MemoryError) as error:
        told = {"error": without_folders(str(error)) or "there was not enough memory for it"}
    answers.give(int(descriptor), told)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
