"""
Fetches the traces of an engine that its process could not simply move into the window's folder.

Owns the copying, which may be of gigabytes and takes nobody's time here. What is to be fetched, and from where, is in
a note that ``stepscope.profilers.traces`` leaves in the folder; it goes when all is there.
"""

import contextlib
import errno
import json
import shutil
import stat
from pathlib import Path, PurePosixPath

from stepscope.profilers.traces import AWAY, HOME, discard
from stepscope_sidecar.artifacts import InvalidArtifact

MAX_NOTE = 1 << 20
"""Bytes of a note; thousands of workers' traces have their names in it."""


def fetch(folder: Path) -> None:
    """
    Copy what the note in ``folder`` names, if there is one, and remove it where it was as far as that is permitted.

    Doing it again, also after a crash at any point, gives the same.

    Raises:
        FileNotFoundError: something cannot be fetched; the message says what and why.
        InvalidArtifact: the note is none.
        OSError: there is no room.
    """
    traces, vacate = _noted(folder)
    if not traces:
        return
    for target, source in traces.items():
        try:
            _fetch(source, target, note=folder / AWAY)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise
            why = error.strerror or str(error)
            raise FileNotFoundError(f"the trace {source} cannot be copied into the window's folder: {why}") from error
    if vacate is not None:
        with contextlib.suppress(OSError):
            vacate.rmdir()
    (folder / AWAY).unlink()


def size(folder: Path) -> int:
    """
    Bytes of the traces that are still to be fetched into ``folder``, as far as can be seen.
    """
    total = 0
    with contextlib.suppress(OSError, InvalidArtifact):
        for target, source in _noted(folder)[0].items():
            if not target.exists():
                total += sum(file.lstat().st_size for file in (source, *source.rglob("*")))
    return total


def _fetch(source: Path, target: Path, *, note: Path) -> None:
    partial = target.with_name(f"{target.name}.partial")
    discard([partial])
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        mode = source.lstat().st_mode
        try:
            if stat.S_ISDIR(mode):
                partial.mkdir()
                _same_user(partial, note)
                shutil.copytree(source, partial, symlinks=True, dirs_exist_ok=True)
            elif stat.S_ISREG(mode):
                partial.touch()
                _same_user(partial, note)
                shutil.copyfile(source, partial)
            else:
                raise OSError("it is neither a file nor a folder")
            partial.rename(target)
        except BaseException:
            # Half of it is of no use to anybody, and it may be what fills the disk.
            discard([partial])
            raise
    discard([source])


def _same_user(mine: Path, note: Path) -> None:
    """
    Whoever wrote the note is served with what he may read himself, and not with what only the sidecar may.
    """
    if mine.lstat().st_uid != note.lstat().st_uid:
        raise OSError("another user's process left it")


def _noted(folder: Path) -> tuple[dict[Path, Path], Path | None]:
    """
    Where the traces go to and come from, and the folder that was made for them, if one was.
    """
    try:
        text = (folder / AWAY).read_bytes()
    except FileNotFoundError:
        return {}, None
    try:
        if len(text) > MAX_NOTE:
            raise ValueError("too long")
        note = json.loads(text)
        targets = {PurePosixPath(target): Path(source) for target, source in note["traces"].items()}
        if any(not _inside(target) or not source.is_absolute() for target, source in targets.items()):
            raise ValueError("a path that does not belong there")
        traces = {folder / target: source for target, source in targets.items()}
        return traces, Path(note["vacate"]) if note["vacate"] else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArtifact(f"{AWAY} does not say what to fetch: {error}") from error


def _inside(target: PurePosixPath) -> bool:
    parts = target.parts
    return ".." not in parts and (len(parts) == 1 or parts[:-1] == (HOME,)) and not target.is_absolute()
