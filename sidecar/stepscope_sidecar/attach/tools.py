"""
What a profiler is that records a process from outside, and which there are.

Owns the seam; each tool has a module of its own that knows its program.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Protocol

from stepscope.names import Reason, Tool
from stepscope_sidecar.attach.driver import Script
from stepscope_sidecar.errors import AttachError


class AttachedTool(Protocol):
    """
    A profiler that is a program of its own.
    """

    @property
    def name(self) -> Tool:
        """
        Its name, as ``STEPSCOPE_TOOLS`` has it.
        """

    @property
    def on_device(self) -> bool:
        """
        Whether it records the accelerator of a process, so that no other profiler may be on that.
        """

    def unavailable(self) -> str:
        """
        Why it cannot record anything here; "" if it can.
        """

    def obstacle(self, pid: int) -> str:
        """
        Why it cannot record process ``pid``; "" if nothing is known to be in the way.
        """

    def script(self, pid: int, *, folder: Path) -> Script:
        """
        How it records process ``pid`` into ``folder``.

        Raises:
            AttachError: its program is not there.
        """

    def left(self, folder: Path) -> bool:
        """
        Whether it has written its recording into ``folder``.
        """


def needed(name: str) -> str:
    """
    The absolute path of program ``name``.

    Raises:
        AttachError: it is not there; it was when the sidecar began, or its tool would not have been offered.
    """
    if not (found := program(name)):
        raise AttachError(f"{name} is not there any more", reason=Reason.TOOL_UNAVAILABLE)
    return found


def program(name: str) -> str:
    """
    The absolute path of program ``name``: beside this Python, where pip puts it, or on PATH; "" if it is not there.
    """
    beside = Path(sys.executable).with_name(name)
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which(name)
    return str(Path(found).absolute()) if found else ""


def built_in() -> dict[str, AttachedTool]:
    """
    The tools that come with this package.
    """
    from stepscope_sidecar.attach.msprof import Msprof
    from stepscope_sidecar.attach.py_spy import PySpy

    tools: tuple[AttachedTool, ...] = (PySpy(), Msprof())
    return {tool.name.value: tool for tool in tools}
