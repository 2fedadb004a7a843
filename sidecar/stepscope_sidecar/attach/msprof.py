"""
msprof: the activity of an Ascend NPU, collected for a running process over msprof's interactive mode.

The process has to be started with ``PROFILING_MODE=dynamic``. The dialogue is that of CANN's documentation and of the
messages in its published sources (5.1 to 9.1); it has not run on hardware.
"""

import re
from pathlib import Path

from stepscope.names import Tool
from stepscope.profilers.attached import LEAVES
from stepscope_sidecar.attach.driver import Script, Turn
from stepscope_sidecar.attach.tools import needed, program

MODE = b"PROFILING_MODE=dynamic"

UNDERSTOOD = r"(?i)(?:dynamic profiling (?:for pid \d+ )?{0} success|execution success)"
"""What the releases answer to a command that they have carried out."""

REFUSED = re.compile(
    r"(?im)^.*(?:\[ERROR\]|dynamic profiling .{0,80}(?:failed|has not|already)|cannot connect|execution failed|invalid)"
    r".*$"
)
"""What they answer when they have not. Bounded: the event loop waits while a long line is searched."""


class Msprof:
    """
    Drives ``msprof --dynamic=on``: start, stop and quit on its stdin.
    """

    name = Tool.MSPROF
    on_device = True

    def unavailable(self) -> str:
        """
        Why it cannot record anything here.
        """
        return "" if program("msprof") else "msprof is not on PATH; it comes with CANN: source its set_env.sh first"

    def obstacle(self, pid: int) -> str:
        """
        Why it cannot be used on process ``pid``.
        """
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError as error:
            return f"pid {pid}: its environment cannot be read: {error.strerror}"
        if MODE not in environment:
            return f"pid {pid}: it was started without {MODE.decode()}, which msprof --dynamic needs"
        return ""

    def script(self, pid: int, *, folder: Path) -> Script:
        """
        How it records process ``pid``, into a folder that is made here.
        """
        (folder / LEAVES[self.name]).mkdir(exist_ok=True)
        return Script(
            command=(
                needed("msprof"),
                "--dynamic=on",
                f"--pid={pid}",
                f"--output={folder / LEAVES[self.name]}",
            ),
            # It reads its stdin when it has connected; whether it shows a prompt before, nobody need know.
            begin=(Turn(say="start", until=re.compile(UNDERSTOOD.format("start"))),),
            finish=(
                Turn(say="stop", until=re.compile(UNDERSTOOD.format("stop"))),
                Turn(say="quit", until=re.compile(UNDERSTOOD.format("quit"))),
            ),
            refused=REFUSED,
        )

    def left(self, folder: Path) -> bool:
        """
        Whether it has written: each start and stop makes a folder called ``PROF_...``.
        """
        return next((folder / LEAVES[self.name]).glob("PROF_*"), None) is not None
