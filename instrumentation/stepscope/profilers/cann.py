"""
What of CANN, Ascend's toolkit, can be told without loading it: whether it is there, and whose the devices are.
"""

import os
from pathlib import Path

RUNTIME = "libascendcl.so"
"""The library that torch_npu cannot be imported without."""

LOADER_CACHE = Path("/etc/ld.so.cache")
"""What the dynamic loader knows besides ``LD_LIBRARY_PATH``."""

OTHERS = {
    "PROFILING_MODE": "msprof",
    "PROFILER_SAMPLECONFIG": "msprof",
    "MSMONITOR_USE_DAEMON": "msMonitor",
    "KINETO_USE_DAEMON": "msMonitor",
}
"""Variables by which another tool takes the devices of a process. torch_npu's profiler then does nothing, without a
word (msprof), or the two break each other (msMonitor)."""


def found() -> bool:
    """
    Whether the dynamic loader would find CANN.
    """
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), f"{os.environ.get('ASCEND_HOME_PATH', '')}/lib64"]
    if any((Path(folder) / RUNTIME).exists() for folder in folders if folder):
        return True
    try:
        return RUNTIME.encode() in LOADER_CACHE.read_bytes()
    except OSError:
        return False


def taken() -> str | None:
    """
    Why the devices are another tool's to profile; ``None`` if they are not.
    """
    for name, tool in OTHERS.items():
        if os.environ.get(name, "0") not in {"", "0"}:
            return f"{name} is set: this process is {tool}'s to profile"
    return None
