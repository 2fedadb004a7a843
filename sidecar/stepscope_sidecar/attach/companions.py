"""
Processes that a person named, each to be recorded while a registered process's window is open.

Owns which they are, and keeps them in a file, so that a restarted sidecar goes on with them. They are forgotten when
they end, or when a person says so.
"""

import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from stepscope_sidecar.surroundings import alive

LOG = logging.getLogger(__name__)

NAME = "attached.json"
"""The file in the attempt's folder."""

MAX_COMPANIONS = 64
"""Processes at a time: each is recorded by a program of its own, and a node has not many cores to spare."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Companion:
    """
    Process ``pid``, recorded by ``tool`` along with rank ``rank`` of ``role``. Its start tells it from a later one.
    """

    pid: int
    process_start: int
    role: str
    rank: int
    tool: str
    devices: tuple[str, ...] = ()
    """What is leased for it: the accelerators that ``tool`` records."""

    @property
    def alive(self) -> bool:
        """
        Whether it has not ended.
        """
        return alive(self.pid, self.process_start)


class Companions:
    """
    All of them, kept in the file at ``path``. The control loop owns it.
    """

    def __init__(self, path: Path) -> None:
        """
        Begin with those that a former sidecar left there.
        """
        self._path = path
        self._all = [companion for companion in _read(path) if companion.alive]

    def all(self) -> list[Companion]:
        """
        Those that live.
        """
        ended = [companion for companion in self._all if not companion.alive]
        if ended:
            self._all = [companion for companion in self._all if companion not in ended]
            self._write()
        return list(self._all)

    def of(self, role: str, rank: int) -> list[Companion]:
        """
        Those that are recorded along with that rank of that role.
        """
        return [companion for companion in self.all() if (companion.role, companion.rank) == (role, rank)]

    def add(self, companion: Companion) -> None:
        """
        Record it from now on. Twice is once.
        """
        if companion not in self._all:
            self._all.append(companion)
            self._write()

    def remove(self, pid: int) -> Companion | None:
        """
        Record process ``pid`` no more; answers what it was, None if it was none.
        """
        found = next((companion for companion in self.all() if companion.pid == pid), None)
        if found is not None:
            self._all.remove(found)
            self._write()
        return found

    def _write(self) -> None:
        partial = self._path.with_name(f"{self._path.name}.{os.getpid()}.partial")
        try:
            partial.write_bytes(orjson.dumps([asdict(companion) for companion in self._all]))
            partial.replace(self._path)
        except OSError as error:
            LOG.warning("%s cannot be written: %s; a restarted sidecar will not attach to anything", self._path, error)


def _read(path: Path) -> list[Companion]:
    try:
        found = orjson.loads(path.read_bytes())
        return [Companion(**{**item, "devices": tuple(item.get("devices", ()))}) for item in found]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        LOG.warning("%s cannot be read: %s; nothing is attached to", path, error)
        return []
