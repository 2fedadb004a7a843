"""
A window of another node and its artifact.
"""

import hashlib
import random
import threading
from pathlib import Path
from typing import IO

from stepscope_sidecar.rows import WindowRow
from tests.unit.sidecar.reporting import told
from tests.unit.sidecar.stored import WAIT

DATA = random.Random(1).randbytes(600_000)
"""Of more than two pieces."""

ARTIFACT = "r-a/step-000005/trainer-0-7/torch/recording.json.gz"


def ready(**changes: object) -> WindowRow:
    """
    A final window of node n2.
    """
    values: dict[str, object] = {"artifact": ARTIFACT, "bytes": len(DATA), "sha256": hashlib.sha256(DATA).hexdigest()}
    return told(5, "ready", **{**values, **changes})


def local(directory: Path, name: str = ARTIFACT, data: bytes = DATA) -> Path:
    """
    An artifact below ``directory``.
    """
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


class Silent:
    """
    The files of an object store that does not answer until it is let go; then it has what is on this machine.
    """

    def __init__(self, let_go: threading.Event) -> None:
        """
        It is when ``let_go`` is set.
        """
        self.let_go = let_go
        self.gave_up: list[str] = []

    def isdir(self, path: str) -> bool:
        """
        Wait.
        """
        if not self.let_go.wait(WAIT):
            self.gave_up.append(path)
        return False

    def open(self, path: str, mode: str = "rb") -> IO[bytes]:
        """
        Open it.
        """
        return Path(path).open("rb")

    def makedirs(self, path: str, exist_ok: bool = False) -> object:
        """
        Nobody does.
        """
        raise NotImplementedError

    def put_file(self, lpath: str, rpath: str) -> object:
        """
        Nobody does.
        """
        raise NotImplementedError
