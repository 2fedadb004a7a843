"""
What lies around the controller on this machine: close records, processes, the disk.

Owns looking. Looks at the disk on a thread of its own now and then; the controller asks for the last answer.
"""

import shutil
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from stepscope import ids, wire
from stepscope.errors import WireError
from stepscope.settings import Settings
from stepscope_sidecar.lifecycle import tree_bytes
from stepscope_sidecar.origin import FOLDER
from stepscope_sidecar.processes import Process
from stepscope_sidecar.windows import Window

DISK_RESERVE = 256 * 1024**2
"""Bytes of the file system that recordings leave free: for the store, and for the job's own checkpoints and logs."""


LEFT = (wire.RECORD, wire.GRANTED)
"""Files in a window's folder that say which window it is."""


class Disk:
    """
    How much of the disk recordings take and may take.
    """

    def __init__(self, settings: Settings) -> None:
        """
        Nothing is known before the first look.
        """
        self._folder = settings.attempt_folder
        self.budget = settings.disk_budget
        """Bytes that recordings of the run may take on this node."""
        self.used = 0
        self.left = 0
        """What they may still take: of the budget, and of what is free."""
        self.free = 0
        """What is free in the file system, the reserve included."""
        self.look()

    def look(self) -> None:
        """
        Look again. Blocking.
        """
        self.used = tree_bytes(self._folder)
        try:
            self.free = shutil.disk_usage(self._folder).free
        except OSError:
            self.free = 0
        self.left = max(0, min(self.budget - self.used, self.free - DISK_RESERVE))


def read_record(path: Path, *, window: str = "") -> wire.Closed | None:
    """
    The close record at ``path``, of ``window`` if one is named; None if there is none that can be used.
    """
    try:
        if path.stat().st_size > wire.MAX_LINE:
            return None
        record = wire.load_closed(path.read_bytes())
    except (OSError, WireError):
        return None
    safe = "/" not in record.artifact and record.artifact not in {".", ".."}
    return record if safe and window in {"", record.window} else None


def alive(pid: int, process_start: int) -> bool:
    """
    Whether process ``pid``, begun at ``process_start``, lives; a zombie does not.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in {"Z", "X"} and process_start in {0, ids.process_start(pid)}


def left_behind(
    settings: Settings, *, known: Container[str], node: str, processes: Iterable[Process] = ()
) -> Iterator[Window]:
    """
    Windows that a killed sidecar granted and never wrote down: those that their processes, which live or were among
    ``processes``, have closed since, and those that were killed with it.
    """
    starts = {(process.role, process.rank, process.pid): process.process_start for process in processes}
    for folder in sorted({path.parent for name in LEFT for path in settings.attempt_folder.glob(f"step-*/*/*/{name}")}):
        match = FOLDER.fullmatch(folder.relative_to(settings.attempt_folder).as_posix())
        if match is None:
            continue
        step, role, rank, pid, tool = match.groups()
        start = starts.get((role, int(rank), int(pid)), 0)
        # Without its start a process that comes back would find its window to be another's.
        found = read_record(folder / wire.RECORD) or (_grant(folder / wire.GRANTED) if start else None)
        if found is None or found.window in known:
            continue
        yield Window(
            window=found.window,
            step=int(step),
            param_version=int(step) - 1,
            role=role,
            rank=int(rank),
            pid=int(pid),
            process_start=start,
            node=node,
            tool=tool,
            level=found.level,
            folder=str(folder.relative_to(settings.directory.absolute())),
        )


def _grant(path: Path) -> wire.Grant | None:
    try:
        message = wire.decode(path.read_bytes()) if path.stat().st_size <= wire.MAX_LINE else None
    except (OSError, WireError):
        return None
    return message if isinstance(message, wire.Grant) else None
