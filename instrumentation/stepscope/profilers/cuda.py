"""
What the tools on torch's CUDA have in common: when they can be used, and that nobody else's profiler is in their way.

Owns looking for CUDA without importing torch. Leaves recording to the tools.
"""

import importlib
import importlib.util
import sys
from typing import Any

from stepscope.profilers import UnavailableError


class OnCuda:
    """
    The part of a tool that does not depend on what it records.
    """

    def unavailable(self) -> str | None:
        """
        Why it cannot be used here; ``None`` as long as nothing is known to be missing.
        """
        if "torch" not in sys.modules:
            return None if importlib.util.find_spec("torch") else "torch is not installed"
        return None if torch().cuda.is_available() else "no CUDA device that torch can use"

    def foreign(self) -> bool:
        """
        Whether somebody else uses the same, torch does not say, or it is what the tool is made for.
        """
        return False

    def prepare(self) -> None:
        """
        Nothing is paid in advance.
        """

    def demand(self) -> None:
        """
        Called as a window starts.

        Raises:
            UnavailableError: it cannot be used here.
        """
        if why := self.unavailable():
            raise UnavailableError(why)


def torch() -> Any:
    """
    The module, imported when it is used.
    """
    return importlib.import_module("torch")
