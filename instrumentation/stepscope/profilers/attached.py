"""
Profilers that the sidecar runs against this process from outside: here, only the boundary is told.
"""

# ruff: noqa: ARG002 - it does nothing with what the protocol hands it

from collections.abc import Mapping

from stepscope.names import Tool
from stepscope.profilers import Armed, Recording, Request

LEAVES: Mapping[str, str] = {Tool.PY_SPY: "recording.speedscope.json", Tool.MSPROF: "msprof"}
"""What each leaves in the window's folder. The agent names it too: its close record outlives a sidecar that dies."""


class AttachedProfiler:
    """
    Stands for the tool ``name``: does nothing at all. Whether it can be used here, the sidecar says.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def unavailable(self) -> str | None:
        """
        Nothing that this process knows of.
        """
        return None

    def foreign(self) -> bool:
        """
        It shares this process with any other.
        """
        return False

    def prepare(self) -> None:
        """
        Nothing to prepare.
        """

    def start(self, request: Request) -> Armed:
        """
        The sidecar starts it when it is told that the step has begun.
        """
        return Armed(level=request.level, marks=False)

    def describe(self, metadata: Mapping[str, str]) -> None:
        """
        The sidecar knows.
        """

    def enter(self, label: str) -> object:
        """
        It has no timeline of ours.
        """
        return None

    def exit(self, handle: object) -> None:
        """
        Nor here.
        """

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        The sidecar stops it when it is told that the step is over.
        """
        return Recording(artifact=LEAVES.get(self.name, ""))

    def abandon(self) -> None:
        """
        Nothing to let go of.
        """


def py_spy() -> AttachedProfiler:
    """
    The one for py-spy.
    """
    return AttachedProfiler(Tool.PY_SPY.value)


def msprof() -> AttachedProfiler:
    """
    The one for msprof.
    """
    return AttachedProfiler(Tool.MSPROF.value)
