"""
Checkpoints: one file per version, complete or not there.
"""

import os
import re
from pathlib import Path
from typing import Any

import torch

from stepscope_trainer.config import JobError

NAME = re.compile(r"version-(\d+)\.pt")


def save(folder: Path, state: dict[str, Any], *, version: int) -> Path:
    """
    Write ``state`` as the checkpoint of ``version``: a reader sees all of it or none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"version-{version:06d}.pt"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    torch.save(state, partial)
    partial.replace(path)
    return path


def find(folder: Path, wanted: str) -> tuple[int, Path]:
    """
    Version and path of the checkpoint that ``--resume`` names: a version, or ``latest``.

    Raises:
        JobError: it is not there.
    """
    found = {
        int(match[1]): path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := NAME.fullmatch(path.name))
    }
    if not found:
        raise JobError(f"--resume {wanted}: no checkpoint in {folder}")
    version = max(found) if wanted == "latest" else int(wanted)
    if version not in found:
        raise JobError(f"--resume {wanted}: {folder} has versions {', '.join(map(str, sorted(found)))}")
    return version, found[version]


def load(path: Path) -> dict[str, Any]:
    """
    The state in ``path``: tensors and plain values, nothing that runs code.
    """
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state
