"""
Where the session of this process writes: one place for all of them, as in the real one.
"""

import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ..signatures import real  # noqa: TID252 - checked under one name, imported by another


class _Paths:
    """
    Names and makes the folder of the next session.
    """

    def __init__(self) -> None:
        self._folder: str | None = None
        self._worker: str | None = None
        self._path: str | None = None
        self.is_prof_inited = False

    @real("torch_npu.profiler._profiler_path_creator.ProfPathCreator.init")
    def init(self, worker_name: str | None, dir_name: str | None, export_only_mode: bool) -> None:
        """
        The next session writes into ``dir_name``.
        """
        self._folder = dir_name and os.path.realpath(dir_name)
        self._worker = worker_name

    def create_prof_dir(self) -> None:
        """
        A session begins.
        """
        stamp = datetime.now(tz=UTC).strftime("%Y%m%d%H%M%S%f")[:-3]
        name = f"{self._worker or socket.gethostname()}_{os.getpid()}_{stamp}_ascend_pt"
        path = Path(self._folder or Path.cwd(), name)
        path.mkdir(mode=0o750, parents=True)
        self._path = str(path)
        self.is_prof_inited = True

    @real("torch_npu.profiler._profiler_path_creator.ProfPathCreator.get_prof_dir")
    def get_prof_dir(self) -> str | None:
        """
        Where the last session writes.
        """
        return self._path


_instance = _Paths()

ProfPathCreator: Callable[[], _Paths] = lambda: _instance  # noqa: E731 - the real one is an instance, called like a class
