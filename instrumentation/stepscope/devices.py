"""
Which accelerator a process works on, where ``init()`` was not told: so that two processes don't record one at a time.

Owns the guess, from what the environment lets the process see and from a torch that is there and set up already; none
is imported or set up for it. Where it cannot be known there is no device, and no lease: better than a false denial.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

VISIBLE = (
    ("cuda", "CUDA_VISIBLE_DEVICES", ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")),
    ("npu", "ASCEND_RT_VISIBLE_DEVICES", ("/dev/davinci_manager",)),
)
"""Kinds of device, as torch calls its module of each; the variable that says which of them a process sees; and what is
there where there are any: the variable is set on machines without, too."""


def mine(
    environment: Mapping[str, str],
    *,
    modules: Mapping[str, Any] | None = None,
    there: Callable[[str], bool] = os.path.exists,
) -> tuple[str, ...]:
    """
    The device that this thread works on, as ``cuda:2`` or ``npu:0``, numbered as on the node; nothing if unknown.

    A process that sees several works on the one that torch has made current, if torch is set up. One that sees all
    of a node without being told has no number that other containers would share, and is left out.
    """
    torch = (sys.modules if modules is None else modules).get("torch")
    for kind, variable, nodes in VISIBLE:
        told = environment.get(variable)
        if told is None or not any(map(there, nodes)):
            continue
        # Both runtimes end their list at the first entry that is none.
        visible: list[str] = []
        for entry in (part.strip() for part in told.split(",")):
            if not entry or entry.startswith("-"):
                break
            visible.append(entry)
        if len(visible) == 1:
            return (f"{kind}:{visible[0]}",)
        current = _current(torch, kind) if visible else None
        if current is not None and current < len(visible):
            return (f"{kind}:{visible[current]}",)
    return ()


def _current(torch: Any, kind: str) -> int | None:
    try:
        module = getattr(torch, kind, None)
        if module is None or not module.is_initialized():
            return None
        return int(module.current_device())
    except Exception:  # noqa: BLE001 - a driver in trouble says so where it is used, not here
        return None


def of(device_ids: tuple[str, ...]) -> list[str]:
    """
    The devices that are leased for a process that named ``device_ids``.
    """
    return list(device_ids or mine(os.environ))
