"""
Events of an accelerator, made up and recorded, for tests to take some out.
"""

import gzip
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from tests.unit.sidecar import traces

LAUNCH = "cudaLaunchKernel"


def call(number: int, name: str = LAUNCH, *, thread: int = 1, category: str = "cuda_runtime") -> dict[str, Any]:
    """
    A call on the host with correlation id ``number``.
    """
    place = {"pid": traces.PID, "tid": thread, "ts": 5_107_424_936_000 + number, "dur": 1}
    return {"ph": "X", "cat": category, "name": name, **place, "args": {"correlation": number}}


def work(number: int, *, category: str = "kernel") -> dict[str, Any]:
    """
    What it has launched on the device.
    """
    place = {"pid": 0, "tid": 7, "ts": 5_107_424_936_005 + number, "dur": 1}
    return {"ph": "X", "cat": category, "name": "gemm", **place, "args": {"correlation": number, "stream": 7}}


def launches(numbers: Iterable[int], *, missing: Collection[int] = ()) -> list[dict[str, Any]]:
    """
    A launch for each of ``numbers``, and what it has launched but for those ``missing``.
    """
    events = [(call(number), work(number)) for number in numbers]
    return [event for pair in events for event in pair if event["cat"] != "kernel" or _id(event) not in missing]


def trace(events: Iterable[dict[str, Any]], **keys: Any) -> bytes:
    """
    A trace that says from when to when the profiler was on: all of the window of :func:`traces.closed`.
    """
    start = (traces.OPENED - traces.BASE) / 1000 - 50
    session = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "ts": start, "dur": 2_000_100}
    mark = {"ph": "X", "cat": "user_annotation", "name": f"a #{traces.SPAN}", "pid": 1, "tid": 1, "ts": start, "dur": 9}
    return json.dumps({"baseTimeNanoseconds": traces.BASE, **keys, "traceEvents": [session, mark, *events]}).encode()


def recorded(name: str) -> dict[str, Any]:
    """
    A recorded trace, by its name below ``kineto`` of the shared data.
    """
    data = (traces.DATA / "kineto" / name).read_bytes()
    found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return found if isinstance(found, dict) else {"traceEvents": found}


def without(whole: dict[str, Any], taken: Collection[int]) -> bytes:
    """
    The trace ``whole`` but for what the device did for the correlation ids ``taken``.
    """
    device = {"kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
    kept = [event for event in whole["traceEvents"] if event.get("cat") not in device or _id(event) not in taken]
    return json.dumps({**whole, "traceEvents": kept}).encode()


def launched(whole: dict[str, Any]) -> list[int]:
    """
    The correlation ids of the kernels in ``whole`` whose launch is in it too, in the order in which they ran.
    """
    names = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch"}
    names |= {"hipLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipGraphLaunch"}
    events = [event for event in whole["traceEvents"] if isinstance(event, dict) and event.get("ph") == "X"]
    calls = {_id(event) for event in events if event.get("name") in names}
    kernels = [event for event in events if event.get("cat") in {"kernel", "Kernel"} and _id(event) in calls]
    return list(dict.fromkeys(_id(event) for event in sorted(kernels, key=lambda event: float(event["ts"]))))


def path(name: str) -> Path:
    """
    Where the shared data has that trace.
    """
    return traces.DATA / "kineto" / name


def _id(event: dict[str, Any]) -> int:
    return int((event.get("args") or {}).get("correlation", 0))
