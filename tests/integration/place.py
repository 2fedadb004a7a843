"""
Where the sidecars of one attempt live, and what can be asked of them from outside.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import WindowRow

from .jobs import BOUNDARY_SECONDS, SETTLE_DEADLINE, eventually

START_DEADLINE = 120.0
"""Seconds for a sidecar to listen on a busy machine."""


@dataclass
class Place:
    """
    Where one attempt's sidecars live.
    """

    folder: Path
    socket: Path
    env: dict[str, str]

    @property
    def attempt(self) -> Path:
        """
        The attempt's folder.
        """
        return self.folder / "run-a1"

    @contextmanager
    def sidecar(self, *, attended: str = "yes") -> Iterator["subprocess.Popen[str]"]:
        """
        A sidecar that listens; ended in order where it has not ended.
        """
        process = self.start(attended=attended)
        try:
            eventually(
                lambda: self.announced().get("pid") == process.pid or process.poll() is not None,
                deadline=SETTLE_DEADLINE,
            )
            assert process.poll() is None, process.communicate()[1]
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=120)

    def start(self, *, attended: str = "yes", env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """
        Start a sidecar and do not wait for it.
        """
        return subprocess.Popen(
            [sys.executable, "-m", "stepscope_sidecar", "--attended", attended],
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def announced(self) -> dict[str, Any]:
        """
        What the sidecar wrote down about itself.
        """
        try:
            found: dict[str, Any] = json.loads((self.attempt / "sidecar.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def windows(self) -> list[WindowRow]:
        """
        The windows in the store.
        """
        with open_reader(self.attempt / "stepscope.db") as reader:
            return reader.windows()

    def settled(self, state: str) -> WindowRow:
        """
        The one window, once it is in ``state``.
        """
        found = eventually(lambda: [row for row in self.windows() if row.state == state], deadline=SETTLE_DEADLINE)
        assert len(self.windows()) == 1
        return found[0]

    def post(self, path: str, **body: object) -> dict[str, Any]:
        """
        Give the sidecar an order over HTTP.
        """
        answer = httpx.post(f"{self.announced()['http']}{path}", json=body, timeout=60, trust_env=False)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


def placed(tmp_path: Path) -> Place:
    """
    An attempt with steps 5 and 8-9 selected.
    """
    path = tmp_path / "s" / "control.sock"
    env = {
        **os.environ,
        "STEPSCOPE_STEPS": "5,8-9",
        "STEPSCOPE_DIR": str(tmp_path / "runs"),
        "STEPSCOPE_RUN": "run",
        "STEPSCOPE_ATTEMPT": "a1",
        "STEPSCOPE_SOCKET": str(path),
        "STEPSCOPE_BOUNDARY_SECONDS": f"{BOUNDARY_SECONDS:g}",
    }
    return Place(folder=tmp_path / "runs", socket=path, env=env)
