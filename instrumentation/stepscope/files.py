"""
Replaces files so that a reader finds all of the new content or all of the old, never half.

Owns the temporary name. Leaves it to callers what a file that cannot be written means.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """
    Make ``data`` the content of ``path``.

    Raises:
        OSError: it cannot be written; ``path`` is as it was.
    """
    with replacing(path) as partial:
        partial.write_bytes(data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """
    A path to write to in the block, which becomes ``path`` when it is left; where the block raises, nothing is left.
    """
    # Of this process alone: another may be writing the same file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
