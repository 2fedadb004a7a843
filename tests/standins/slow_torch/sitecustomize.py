"""
A stand-in for a slow profiler: torch's, whose stop takes as many seconds longer as STANDIN_STOP_SECONDS says.

With this folder on PYTHONPATH every Python process has it, the workers of a job's Ray too.
"""

import os
import threading

from stepscope.profilers import Recording, Request
from stepscope.profilers.torch import TorchProfiler

_stop = TorchProfiler.stop


def slow_stop(self: TorchProfiler, request: Request, *, keep: bool = True) -> Recording:
    """
    Stop, and wait.
    """
    recording = _stop(self, request, keep=keep)
    threading.Event().wait(float(os.environ.get("STANDIN_STOP_SECONDS", "0")))
    return recording


TorchProfiler.stop = slow_stop  # type: ignore[method-assign]  # which is the point of it
