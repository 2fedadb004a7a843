"""
The file or folder that a close record names: what of it may be taken, its size and its hash.

Nothing outside the window's folder is ever reached: a name is one part of a path, and links are refused.
"""

import hashlib
import os
import stat
from pathlib import Path

from stepscope_sidecar import sums
from stepscope_sidecar.artifacts import InvalidArtifact
from stepscope_sidecar.places import HIDDEN, plain

MAX_FILES = 10_000
"""Files of one artifact: an Ascend recording of raw data has some hundred, a run-away profiler has no end."""


def raw(folder: Path, name: str) -> Path:
    """
    The path of what is called ``name`` in ``folder``; whether it is there is for the caller to see.

    Raises:
        InvalidArtifact: that is no name of something in the folder, or it is neither a plain file nor a folder.
    """
    if not name or Path(name).name != name:
        raise InvalidArtifact(f"{name!r} is not the name of a file in the window's folder")
    if not plain(name):
        unfit = f"a recording's name may have none of {HIDDEN[1:]} and nothing that cannot be printed"
        raise InvalidArtifact(f"{name!r} is not a name that can be reported and asked for: {unfit}")
    found = folder / name
    try:
        mode = found.lstat().st_mode
    except FileNotFoundError:
        return found
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InvalidArtifact(f"{name!r} is neither a plain file nor a folder")
    return found


def files(path: Path) -> list[Path]:
    """
    The file at ``path``, or all files below it, in the order of their names.

    Raises:
        FileNotFoundError: there is none.
        InvalidArtifact: there is something else too, or there are too many.
    """
    if not path.is_dir():
        path.lstat()
        return [path]
    found: list[Path] = []
    for top, folders, names in os.walk(path):
        for name in [*folders, *names]:
            mode = Path(top, name).lstat().st_mode
            if stat.S_ISREG(mode):
                found.append(Path(top, name))
            elif not stat.S_ISDIR(mode):
                raise InvalidArtifact(f"{name!r} in {path.name} is neither a plain file nor a folder")
        if len(found) > MAX_FILES:
            raise InvalidArtifact(f"more than {MAX_FILES} files in {path.name}")
    if not found:
        raise FileNotFoundError(f"no file in {path.name}")
    return sorted(found, key=lambda file: _name(file, path))


def measure(path: Path) -> tuple[int, str]:
    """
    Bytes and SHA-256 of the artifact at ``path``.

    A folder's hash is that of one line per file, ``<sha256>  <relative name>``, in the order of the names' bytes:
    what ``sha256sum`` prints for them.
    """
    if not path.is_dir():
        return _measure_file(path)
    total, listed = _listed(path)
    return total, hashlib.sha256(listed).hexdigest()


def seal(path: Path) -> tuple[int, str]:
    """
    :func:`measure`, and beside an artifact that is a folder the list of its files is left, whose hash that is.
    """
    if not path.is_dir():
        return _measure_file(path)
    total, listed = _listed(path)
    beside = path.with_name(path.name + sums.SUFFIX)
    partial = beside.with_name(f".{beside.name}.partial")
    partial.write_bytes(listed)
    partial.replace(beside)
    return total, hashlib.sha256(listed).hexdigest()


def _listed(path: Path) -> tuple[int, bytes]:
    total, lines = 0, []
    for file in files(path):
        size, digest = _measure_file(file)
        total += size
        lines.append(sums.line(digest, _name(file, path)))
    return total, b"".join(lines)


def _measure_file(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def _name(file: Path, top: Path) -> bytes:
    return os.fsencode(file.relative_to(top).as_posix())
