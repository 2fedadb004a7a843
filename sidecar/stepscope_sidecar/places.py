"""
What may be the path of an artifact, and what lies there: one rule for whoever makes one, reports one, asks for one or
reads one.

A path that this node takes is one that every other sidecar takes, or its window could be shown nowhere else.
"""

import os
import stat
from pathlib import Path, PurePosixPath

HIDDEN = "\0\\%?#"
"""Characters that an address or another system reads as something else."""


def plain(path: str) -> bool:
    """
    Whether ``path`` leads to something below where it begins, however it is read, and can be printed.
    """
    readable = path.isprintable() and not any(character in path for character in HIDDEN)
    return readable and _below(path)


def _below(path: str) -> bool:
    parts = PurePosixPath(path).parts
    # POSIX leaves open what two slashes at the beginning mean, so that pathlib keeps them.
    return bool(parts) and "\0" not in path and ".." not in parts and path[0] != "/" and path == "/".join(parts)


def enclosed(directory: Path, path: str) -> Path | None:
    """
    The plain file or the folder at ``path`` below ``directory``; None where there is neither, or where a link on the
    way would lead elsewhere, or nothing can be told of it.
    """
    # A profiler's folder may have names in it that nobody would give an artifact.
    if not _below(path):
        return None
    root = directory.resolve()
    found = root / path
    try:
        mode = found.lstat().st_mode
        real = os.path.realpath(found, strict=True)
    except OSError:
        return None
    # A link anywhere on the way makes the real path another one.
    return found if real == str(found) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) else None
