"""
Which folder of an attempt is this node's own, where several nodes keep their runs on one file system.

The first sidecar that comes takes the attempt's folder itself; that of another node finds its name there and takes a
folder below it. Two never write to one store. The name stays, so that a sidecar comes back to what was its node's.
"""

import contextlib
import os
import re
import secrets
import time
from dataclasses import replace
from pathlib import Path

from stepscope import ids
from stepscope.errors import ConfigurationError
from stepscope.settings import NODES, Settings

OWNER = ".node"
"""In the attempt's folder: the name of the node whose it is."""

LOOKS = 20
"""Looks at a name that is not written yet, where the file system lets nobody make it whole."""

PAUSE = 0.05
"""Seconds between two of them; writing a name takes far less than a second."""


def settle(settings: Settings) -> Settings:
    """
    ``settings`` with this node's folder as the attempt's.

    Raises:
        ConfigurationError: STEPSCOPE_DIR cannot be written.
    """
    folder, node = settings.attempt_folder, ids.node()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / OWNER).exists():
            _claim(folder, node)
        owner = _owner(folder)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(f"STEPSCOPE_DIR={folder.parent}: cannot write there ({reason})") from None
    return settings if owner == node else replace(settings, below=re.sub(r"[^A-Za-z0-9._-]", "_", node))


def directory(folder: Path) -> Path:
    """
    STEPSCOPE_DIR of the store in ``folder``, which is an attempt's or a node's in one.
    """
    return folder.parents[2] if folder.parent.name == NODES else folder.parent


def _owner(folder: Path) -> str:
    """
    Whose ``folder`` is. What is no name is nobody's, and least of all this node's: its store stays as it is.
    """
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE)
        if found := (folder / OWNER).read_bytes():
            break
    return found.decode(errors="replace").strip()


def _claim(folder: Path, node: str) -> None:
    # A link is made by one alone, whole, on network file systems too.
    own = folder / f"{OWNER}-{secrets.token_hex(4)}"
    name = f"{node}\n".encode()
    own.write_bytes(name)
    try:
        os.link(own, folder / OWNER)
    except FileExistsError:
        pass
    except OSError:
        # Not every file system has links (FUSE on object stores, FAT). A file is made by one alone too, if not whole.
        with contextlib.suppress(FileExistsError), (folder / OWNER).open("xb") as file:
            file.write(name)
    finally:
        own.unlink()
