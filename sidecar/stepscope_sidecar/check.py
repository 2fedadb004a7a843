"""
What can be profiled on this machine, and for what cannot: why.

Looks; changes nothing and starts no profiler. Devices are asked for in a child process, because importing torch takes
seconds and can end a process whose plug-ins are broken.
"""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from stepscope import names
from stepscope.output import last_line
from stepscope.profilers import BUILT_IN, Registry
from stepscope.settings import NOT_DRIVEN, Settings
from stepscope_sidecar.attach import target
from stepscope_sidecar.attach.tools import built_in
from stepscope_sidecar.labels import size
from stepscope_sidecar.surroundings import DISK_RESERVE

EXPERIMENTAL = frozenset({names.Tool.CUDA_RANGE, names.Tool.TORCH_MEMORY})
"""Tried against stand-ins; both need CUDA."""

PROBE = """
import json, torch
found = [name for name in ("cuda", "xpu") if hasattr(torch, name) and getattr(torch, name).is_available()]
print(json.dumps({"version": torch.__version__, "devices": found}))
"""

PROBE_DEADLINE = 60.0
"""Seconds for importing torch; a cold disk takes ten."""

ANSWER_DEADLINE = 2.0
"""Seconds for a server to take a connection; one on this machine needs a millisecond."""


def capabilities(settings: Settings) -> dict[str, Any]:
    """
    Each tool, whether it can be used here, its levels if it has any, and the reasons for what it cannot do.
    """
    found = _torch()
    tools = {tool: _entry(why) for tool, why in NOT_DRIVEN.items()}
    tools |= {tool: _in_process(tool, settings, found) for tool in BUILT_IN}
    for tool, attached in built_in().items():
        tools[tool] = _entry(attached.unavailable(), note="from outside, when it is asked for")
    order = [tool.value for tool in names.Tool]
    tools = {str(tool): tools[tool] for tool in sorted(tools, key=order.index)}
    return {"tools": tools, "environment": _environment(settings, found)}


def verl() -> dict[str, Any]:
    """
    Which verl is installed, why its processes would stay uninstrumented ("" where they would not), and what is missing.
    """
    from stepscope.integrations.verl import probe

    return probe.report()


def _in_process(tool: str, settings: Settings, found: dict[str, Any]) -> dict[str, Any]:
    """
    The entry of a tool that the program itself drives; what is not known here of one, its driver says.
    """
    if tool == names.Tool.TORCH:
        return _torch_levels(found)
    if tool == names.Tool.VLLM:
        return _entry(_vllm(), note="of an engine that the program registers")
    if tool == names.Tool.HTTP:
        return _entry(_http(settings), note="of the server that is named")
    why = _registered(tool)
    if tool == names.Tool.TORCH_NPU:
        return _entry(why, levels=[] if why else [level.value for level in names.Level])
    if tool in EXPERIMENTAL:
        return _entry(why or _no_cuda(found), note="experimental")
    return _entry(why)


def _entry(why: str, *, note: str = "", levels: Sequence[str] = ()) -> dict[str, Any]:
    return {"available": not why, "levels": list(levels), "unavailable": {"": why} if why else {}, "note": note}


def _no_cuda(found: dict[str, Any]) -> str:
    return str(found.get("error", "" if "cuda" in found.get("devices", ()) else "torch sees no CUDA device"))


def _registered(tool: str) -> str:
    profiler = Registry().find(tool)
    return "it has no driver here" if profiler is None else profiler.unavailable() or ""


def _vllm() -> str:
    return "" if importlib.util.find_spec("vllm") else "vllm is not installed; pip install '/path/to/stepscope[vllm]'"


def _http(settings: Settings) -> str:
    if settings.http_servers is None:
        return f"no server is named: set {names.HTTP_PROFILER_URL}, or register an HttpProfiler"
    silent = []
    for server in settings.http_servers.every():
        # Whether it has profiling endpoints cannot be asked without starting its profiler.
        try:
            socket.create_connection((server.host, server.port), ANSWER_DEADLINE).close()
        except OSError as error:
            silent.append(f"nobody answers at {server.url} ({error})")
    return "; ".join(silent)


def _torch() -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        return {"error": "torch is not installed"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_DEADLINE, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"importing torch took longer than {PROBE_DEADLINE:.0f} s"}
    if done.returncode:
        return {"error": f"torch cannot be imported: {last_line(done.stderr) or 'no message'}"}
    # torch, or a plug-in that it loads, may print too.
    last = last_line(done.stdout)
    try:
        found = json.loads(last)
    except ValueError:
        found = None
    return (
        found
        if isinstance(found, dict) and "devices" in found
        else {"error": f"torch was asked for its devices and said {last[:80]!r}"}
    )


def _torch_levels(found: dict[str, Any]) -> dict[str, Any]:
    levels = [level.value for level in names.Level]
    if "error" in found:
        return _entry(found["error"])
    if found["devices"]:
        return _entry("", levels=levels)
    levels.remove(names.Level.DEVICE)
    return {**_entry("", levels=levels), "unavailable": {"device": "no accelerator that torch can use"}}


def _environment(settings: Settings, found: dict[str, Any]) -> dict[str, str]:
    directory = settings.directory.absolute()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return {
        "selection": settings.selection.text or f"empty: set {names.STEPS}",
        "ranks": settings.ranks.text,
        "level": settings.level,
        "directory": f"{directory} ({'writable' if os.access(existing, os.W_OK) else 'NOT writable'})",
        "free": f"{size(free)}, of which recordings may take {size(_may_take(settings, free))}",
        "torch": found.get("version", found.get("error", "")),
        "devices": ", ".join(found.get("devices", [])) or "none",
        "ptrace": _ptrace(),
        "disabled": "yes" if settings.disabled else "no",
    }


def _may_take(settings: Settings, free: int) -> int:
    """
    Bytes that a new run's recordings may take: of the budget, and of what is ``free``.
    """
    return max(0, min(settings.disk_budget, free - DISK_RESERVE))


def _ptrace() -> str:
    """
    Whether tools may look into other processes of this user, and why not.
    """
    capable = "with" if target.may_trace() else "without"
    return target.restriction() or f"allowed (scope {target.ptrace_scope()}, {capable} CAP_SYS_PTRACE)"
