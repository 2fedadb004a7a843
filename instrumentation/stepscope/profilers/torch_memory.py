"""
torch's history of CUDA memory: every allocation of a window, as the snapshot that pytorch.org/memory_viz opens.

Experimental: it has run against a stand-in alone. Its functions are private to torch, whose documentation names them.
"""

# ruff: noqa: ARG002, SLF001 - it does nothing with some of what it is handed; torch has no public way to this

from collections.abc import Mapping
from typing import Any

from stepscope import files
from stepscope.names import Tool
from stepscope.profilers import Armed, Recording, Request
from stepscope.profilers.cuda import OnCuda, torch

ARTIFACT = "memory.pickle"
"""The snapshot in the window's folder. Nothing of ours ever loads it: a pickle is a program."""

MAX_ENTRIES = 100_000
"""Allocations and frees that are kept, the newest: torch says several kilobytes for each with its stack."""


class TorchMemory(OnCuda):
    """
    The tool ``torch_memory``.
    """

    name = str(Tool.TORCH_MEMORY)

    def start(self, request: Request) -> Armed:
        """
        Keep the history from now on.
        """
        self.demand()
        _memory()._record_memory_history(stacks="python", max_entries=MAX_ENTRIES)
        return Armed(level=request.level, marks=False)

    def describe(self, metadata: Mapping[str, str]) -> None:
        """
        A snapshot has no place for it.
        """

    def enter(self, label: str) -> object:
        """
        A snapshot has no timeline of ours.
        """
        return None

    def exit(self, handle: object) -> None:
        """
        Nor here.
        """

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Write the snapshot, and keep no history any more, whether or not it could be written.
        """
        try:
            if keep:
                with files.replacing(request.folder / ARTIFACT) as partial:
                    _memory()._dump_snapshot(str(partial))
        finally:
            self.abandon()
        return Recording(artifact=ARTIFACT if keep else "")

    def abandon(self) -> None:
        """
        Keep no history any more.
        """
        _memory()._record_memory_history(enabled=None)


def _memory() -> Any:
    return torch().cuda.memory
