"""
What can be profiled on this machine, and for what cannot: why.

Looks; changes nothing and starts no profiler. Devices are asked for in a child process, because importing torch takes
seconds and can end a process whose plug-ins are broken.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from typing import Any

from stepscope import names
from stepscope.settings import Settings

PROBE = """
import json, torch
found = [name for name in ("cuda", "xpu") if hasattr(torch, name) and getattr(torch, name).is_available()]
print(json.dumps({"version": torch.__version__, "devices": found}))
"""

PROBE_DEADLINE = 60.0
"""Seconds for importing torch; a cold disk takes ten."""

NOT_DRIVEN = "this release cannot drive it"

OTHERS = {
    "vllm": "vllm",
    "torch_npu": "torch_npu",
    "msprof": "msprof",
    "py-spy": "py-spy",
    "nsys": "nsys",
}
"""Profilers that are named in the documentation and not driven yet, and how to see whether they are here."""


def capabilities(settings: Settings) -> dict[str, Any]:
    """
    Each tool with the levels it can record at here and the reasons for the rest; and what else matters.
    """
    found = _torch()
    tools: dict[str, Any] = {"torch": _torch_levels(found)}
    for tool, thing in OTHERS.items():
        present = shutil.which(thing) is not None or importlib.util.find_spec(thing.replace("-", "_")) is not None
        why = f"{NOT_DRIVEN}{'' if present else ', and it is not installed'}"
        tools[tool] = {"levels": [], "unavailable": {"": why}}
    return {"tools": tools, "environment": _environment(settings, found)}


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
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"torch cannot be imported: {last}"}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _torch_levels(found: dict[str, Any]) -> dict[str, Any]:
    levels = [level.value for level in names.Level]
    if "error" in found:
        return {"levels": [], "unavailable": {"": found["error"]}}
    if found["devices"]:
        return {"levels": levels, "unavailable": {}}
    levels.remove(names.Level.DEVICE)
    return {"levels": levels, "unavailable": {"device": "no accelerator that torch can use"}}


def _environment(settings: Settings, found: dict[str, Any]) -> dict[str, str]:
    directory = settings.directory.absolute()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return {
        "selection": settings.selection.text or f"empty: set {names.STEPS}",
        "ranks": settings.ranks.text,
        "level": settings.level,
        "directory": f"{directory} ({'writable' if os.access(existing, os.W_OK) else 'NOT writable'})",
        "free": f"{free / 1024**3:.1f} GiB, of which recordings may take {settings.disk_budget / 1024**3:.1f} GiB",
        "torch": found.get("version", found.get("error", "")),
        "devices": ", ".join(found.get("devices", [])) or "none",
        "disabled": "yes" if settings.disabled else "no",
    }
