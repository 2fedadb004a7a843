"""
py-spy: the stacks of all Python threads of a process, sampled from outside. The process need know nothing of it.
"""

import re
import signal
from pathlib import Path

from stepscope.names import Tool
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar.attach import target
from stepscope_sidecar.attach.driver import Script, Turn
from stepscope_sidecar.attach.tools import needed, program

RATE = 100
"""Samples a second: py-spy's own default. One costs the process nothing, as it is not halted for it."""


class PySpy:
    """
    Drives ``py-spy record``; SIGINT ends it, and it ends by itself with the process that it records.
    """

    name = Tool.PY_SPY
    on_device = False

    def unavailable(self) -> str:
        """
        Why it cannot record anything here.
        """
        if not program("py-spy"):
            return "py-spy is not installed; pip install '/path/to/stepscope[attach]', or put it on PATH"
        return target.restriction()

    def obstacle(self, pid: int) -> str:
        """
        Why it cannot read process ``pid``.
        """
        return target.obstacle(pid)

    def script(self, pid: int, *, folder: Path) -> Script:
        """
        How it records process ``pid``.
        """
        command = (
            needed("py-spy"),
            "record",
            "--format=speedscope",
            f"--rate={RATE}",
            # Threads that wait are recorded too: without them time that nothing ran in is left out of the timeline.
            "--idle",
            "--threads",
            # The process goes on while it is read; a sample that was torn by that is counted as an error.
            "--nonblocking",
            f"--pid={pid}",
            f"--output={folder / LEAVES[self.name]}",
        )
        return Script(
            command=command,
            begin=(Turn(until=re.compile(r"Sampling process")),),
            stop=signal.SIGINT,
            # It writes what it has.
            orphaned=signal.SIGINT,
        )

    def left(self, folder: Path) -> bool:
        """
        Whether its file is there.
        """
        return (folder / LEAVES[self.name]).is_file()
