"""
Reads what profilers have written: ``open`` makes a ``Trace`` of any recording, or says what is wrong with it.

Owns which reader is for which file. Read ``trace`` first: it is all that the other modules here know of a file.
"""

from collections.abc import Sequence
from pathlib import Path

from stepscope_sidecar.traces import opening
from stepscope_sidecar.traces.trace import (
    NONE,
    WORK,
    Clock,
    Collective,
    Fault,
    Flag,
    Header,
    Kind,
    Points,
    Trace,
    Tracks,
    Unplaced,
)

__all__ = [
    "NONE",
    "WORK",
    "Clock",
    "Collective",
    "Fault",
    "Flag",
    "Header",
    "Kind",
    "Points",
    "Trace",
    "Tracks",
    "Unplaced",
    "open",
    "open_all",
]


def open(path: str | Path) -> Trace:  # noqa: A001 - that is what it does; used as traces.open
    """
    The recording at ``path``: a file of any of the formats, or a folder that holds one.

    Never raises for what is in a file: what can't be read is flagged in the header, with a reason. Memory is bounded by
    the number of events, about 50 bytes each, whatever the size of the file.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
    """
    return opening.one(Path(path))


def open_all(path: str | Path) -> Sequence[Trace]:
    """
    All recordings at ``path``: an engine's workers and Ascend's ranks leave a folder of several.

    Raises:
        FileNotFoundError: there is nothing at ``path``.
    """
    return opening.several(Path(path))
