"""
The traces that somebody else's workers write into a folder: which of them are a window's, and bringing them home.

Owns how they are told apart: by the name they were asked to have, or, in a folder that nobody else writes into, by
not having been there before. Leaves to the finaliser to copy what cannot simply be moved, gigabytes perhaps, and to say
whether a trace is sound.
"""

import asyncio
import contextlib
import json
import os
import shutil
import stat
import time
from pathlib import Path

from stepscope import files

LOOK = 0.05
"""Seconds between looks into the folder: short against writing a trace, and a look costs microseconds."""

QUIET = 0.3
"""Seconds without a new trace or a growing one after which no other rank is expected to write."""

PACKED = ".gz"

TRACES = (".json", f".json{PACKED}")
"""How the names of traces end."""

ASCEND = "_ascend_pt"
"""How the name of the folder ends that a worker on an Ascend device leaves in the place of a trace."""

ASCEND_DONE = "profiler_info*.json"
"""What lies in it once its profiler has stopped."""

HOME = "traces"
"""The folder in a window's folder that holds them, where there are several."""


AWAY = "away.json"
"""The file in a window's folder that names the traces which the finaliser still has to fetch, and from where."""


class Drop:
    """
    A folder that traces are dropped into. Made before the profiler starts: what is there already is nobody's.
    """

    def __init__(self, folder: Path, *, prefix: str, own: bool = False, made: bool = False) -> None:
        """
        The window's are called ``prefix`` and something; in a folder of its ``own`` all new ones are.

        ``made``: the folder was made for the window.
        """
        self.folder = folder
        self.prefix = prefix
        self._own = own
        self._made = made
        self._before = set(self._names())

    def found(self) -> list[Path]:
        """
        The window's traces that are there now.
        """
        return [
            self.folder / name
            for name in self._names()
            if name not in self._before and (self._own or name.startswith(self.prefix))
        ]

    def beside(self) -> list[Path]:
        """
        What else has the window's name, a summary for example.
        """
        listed = _listed(self.folder)
        traces = (*TRACES, ASCEND)
        return [self.folder / name for name in listed if name.startswith(self.prefix) and not name.endswith(traces)]

    async def arrived(self, *, seconds: float, settled: bool = False) -> list[Path]:
        """
        The same once they are there and, unless they are known to be ``settled``, no longer grow; at most ``seconds``.
        """
        clock = time.monotonic
        until, quiet = clock() + seconds, 0.0 if settled else QUIET
        now, changed = _sized(self.found()), clock()
        while clock() < until and (not now or clock() - changed < quiet):
            await asyncio.sleep(LOOK)
            before, now = now, _sized(self.found())
            if now != before:
                # What comes late is still being written.
                changed, quiet = clock(), QUIET
        return [path for path, _ in now]

    def bring_home(self, traces: list[Path], folder: Path) -> str:
        """
        Move ``traces`` into a window's ``folder``; the name there of the one, or of a folder of them.

        Never copies: where that would be needed, what is to be fetched from where is noted in ``folder``. They are
        called raw there, packed or not: so the finaliser takes them apart and writes into each whose it is.

        Raises:
            OSError: the window's folder cannot be written to.
        """
        home = "" if len(traces) == 1 else HOME
        (folder / home).mkdir(exist_ok=True)
        away = {}
        for trace in traces:
            target = folder / home / trace.name.removesuffix(PACKED)
            try:
                trace.rename(target)
            except OSError:
                # Another file system, or a folder that is not ours to change.
                away[str(target.relative_to(folder))] = str(trace.absolute())
        if away:
            note = {"traces": away, "vacate": str(self.folder.absolute()) if self._made else ""}
            files.replace(folder / AWAY, json.dumps(note).encode())
        return home or traces[0].name.removesuffix(PACKED)

    def vacate(self) -> None:
        """
        The window is done with the folder: one that was made for it goes, unless something else is in there.
        """
        if self._made:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def _names(self) -> list[str]:
        return [name for name in _listed(self.folder) if name.endswith((*TRACES, ASCEND))]


def discard(traces: list[Path]) -> None:
    """
    Remove ``traces`` as far as that is permitted.
    """
    for trace in traces:
        with contextlib.suppress(OSError):
            if trace.is_dir():
                shutil.rmtree(trace)
            else:
                trace.unlink()


def _listed(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.is_file(follow_symlinks=False)
                or (entry.name.endswith(ASCEND) and entry.is_dir(follow_symlinks=False))
            )
    except OSError:
        # The server makes it with the first trace.
        return []


def _sized(paths: list[Path]) -> list[tuple[Path, int]]:
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found.append((path, status.st_size))
            elif any(path.glob(ASCEND_DONE)):
                # It may still be analysed, which adds files.
                found.append((path, sum(file.lstat().st_size for file in path.rglob("*"))))
    return found
