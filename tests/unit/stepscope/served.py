"""
Windows of the tool http against the stand-ins for inference servers.
"""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

from stepscope.profilers import Recording, Request
from stepscope.profilers.http import HttpProfiler
from tests.standins.inference import StandIn, StandInVllm

SHORT = 1.0
"""Seconds of a deadline that is meant to pass."""


def driver(server: StandIn, **settings: Any) -> HttpProfiler:
    """
    The tool for ``server``; of vLLM's it knows where the traces land.
    """
    if isinstance(server, StandInVllm):
        return HttpProfiler(server.url, **{"folder": server.folder, **settings})
    return HttpProfiler(server.url, **{"kind": "sglang", **settings})


def request(tmp_path: Path, number: int = 1, level: str = "spans") -> Request:
    """
    A window's, with its folder.
    """
    folder = tmp_path / f"window-{number}"
    folder.mkdir(exist_ok=True)
    return Request(window=f"{number:06d}-rollouter-0-7-http-ab{number}", level=level, folder=folder)


def record(profiler: HttpProfiler, window: Request, *, keep: bool = True) -> Recording:
    """
    Start and stop at once.
    """
    return asyncio.run(record_in(profiler, window, keep=keep))


async def record_in(profiler: HttpProfiler, window: Request, *, keep: bool = True) -> Recording:
    """
    The same on this event loop.
    """
    await profiler.start(window)
    return await profiler.stop(window, keep=keep)


def operators(path: Path) -> list[str]:
    """
    The names of the events in a trace.
    """
    return [event["name"] for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]
