"""
Which files may leave over HTTP: artifacts of windows, and nothing else however it is asked for.
"""

import re
from pathlib import Path, PurePath, PurePosixPath

from starlette.exceptions import HTTPException

from stepscope_sidecar import places, sums
from stepscope_sidecar.reader import Reader
from stepscope_sidecar.rows import WindowRow

STEP_FOLDER = re.compile(r"step-(\d{1,15})", re.ASCII)

JSON, BYTES = "application/json", "application/octet-stream"
"""What a file is sent as: nothing that a browser shows as a page, or unpacks, so that its bytes are what was hashed."""


def find_artifact(reader: Reader, path: str, *, directory: Path) -> tuple[Path, WindowRow]:
    """
    What is at ``path`` below ``directory``: an artifact of a window in the store, or a file in one that is a folder, or
    the list of those.

    Raises:
        HTTPException: it is neither; nothing is said about what else there may be.
    """
    absent = HTTPException(404, "no such artifact")
    parts = PurePosixPath(path).parts
    step = next((int(match[1]) for part in parts if (match := STEP_FOLDER.fullmatch(part))), None)
    window = next(
        (row for row in reader.windows(step=step) if row.artifact and _belongs(path, row.artifact)),
        None,
    )
    if window is None:
        raise absent
    found = places.enclosed(directory, path)
    if found is None or (found.is_dir() and path != window.artifact):
        raise absent
    return found, window


def media_type(file: PurePath) -> str:
    """
    What ``file`` is sent as, whoever has written it.
    """
    return JSON if file.suffix == ".json" else BYTES


def _belongs(path: str, artifact: str) -> bool:
    return PurePosixPath(path).is_relative_to(artifact) or path == artifact + sums.SUFFIX
