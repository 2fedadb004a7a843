"""
Marks a window for a CUDA profiler that waits outside for ``cudaProfilerStart``: ``nsys profile -c cudaProfilerApi``.

Experimental: it has run against a stand-in alone. Owns no recording; the profiler outside writes where it was told to.
"""

# ruff: noqa: ARG002 - it does nothing with some of what the protocol hands it

import json
import time
from collections.abc import Mapping

from stepscope.names import Tool
from stepscope.profilers import Armed, Recording, Request
from stepscope.profilers.cuda import OnCuda, torch

ARTIFACT = "range.json"
"""What is left in the window's folder: when the range was, to find it in the other profiler's recording."""


class CudaRange(OnCuda):
    """
    The tool ``cuda_range``. Spans are NVTX ranges in the other profiler's recording.
    """

    name = str(Tool.CUDA_RANGE)

    def __init__(self) -> None:
        self._metadata: dict[str, str] = {}
        self._began = 0

    def start(self, request: Request) -> Armed:
        """
        Tell the profiler outside to begin.
        """
        self.demand()
        cuda = torch().cuda
        cuda.check_error(cuda.cudart().cudaProfilerStart())
        self._began, self._metadata = time.time_ns(), {}
        return Armed(level=request.level)

    def describe(self, metadata: Mapping[str, str]) -> None:
        """
        Kept for the file beside.
        """
        self._metadata = dict(metadata)

    def enter(self, label: str) -> object:
        """
        Begin an NVTX range, which may end on another thread.
        """
        return torch().cuda.nvtx.range_start(label)

    def exit(self, handle: object) -> None:
        """
        End it.
        """
        torch().cuda.nvtx.range_end(handle)

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Let the device finish what was launched, tell the profiler outside to end, and note the range.
        """
        cuda = torch().cuda
        cuda.synchronize()
        ended = time.time_ns()
        cuda.check_error(cuda.cudart().cudaProfilerStop())
        note = {"began_unix_ns": self._began, "ended_unix_ns": ended, "metadata": self._metadata}
        (request.folder / ARTIFACT).write_text(json.dumps(note))
        return Recording(artifact=ARTIFACT)

    def abandon(self) -> None:
        """
        Nothing to let go of.
        """
