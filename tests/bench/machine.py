"""
The line above every table: on what it was measured.
"""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def describe(*packages: str) -> str:
    """
    The processor, cores, Python and the versions of ``packages``, in one line.
    """
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    versions = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} absent")
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; {', '.join(versions)}"


def table(title: str, rows: Sequence[tuple[str, ...]], *, note: str = "") -> str:
    """
    ``rows`` (the first is the heading) as an aligned text table under ``title``.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(["", title, *([note] if note else []), "", *lines, ""])
