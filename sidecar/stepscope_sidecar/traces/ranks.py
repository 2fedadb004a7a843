"""
Which rank a recording is of, and of how many: from what the file says, else from its name.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from stepscope_sidecar.traces.chrome import number

_NAMES = (
    re.compile(r"rank[-_]?(?P<rank>\d+)-of-(?P<world>\d+)"),
    re.compile(r"(?:^|[-_./])rank[-_]?(?P<rank>\d+)(?![\d])"),
)
"""As verl's, and as most programs name their files."""


def rank(keys: Mapping[str, object], path: Path) -> tuple[int | None, str, int | None]:
    """
    The rank, where it was found, and the world's size; ``keys`` are the outermost of the file.
    """
    told = keys.get("distributedInfo")
    found = number(told.get("rank")) if isinstance(told, dict) else None
    world = number(told.get("world_size")) if isinstance(told, dict) else None
    if found is not None:
        return found, "distributedInfo", world
    if (own := number(keys.get("stepscope.rank"))) is not None:
        return own, "stepscope.rank", world
    for pattern in _NAMES:
        if name := pattern.search(path.name.lower()):
            told_world = name.groupdict().get("world")
            return int(name["rank"]), "the file's name", int(told_world) if told_world else world
    return None, "", world
