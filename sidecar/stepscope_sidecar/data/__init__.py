"""
A run as data: ``open(path)`` gives tables of its spans, windows, samples and kernels, and writes them as Parquet.

Needs pyarrow (extra ``data``). Reads the store and the recordings; writes nothing into the run, and needs no sidecar.
Columns are in ``columns``; what is in no column leaves no run: environment dumps and host paths.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope_sidecar.errors import DataError, StoreError
from stepscope_sidecar.schema import FILE

if TYPE_CHECKING:
    from stepscope_sidecar.data.run import Run

__all__ = ["open"]


def open(path: str | Path) -> "Run":  # noqa: A001 - that is what it does; used as data.open
    """
    The run at ``path``: an attempt's folder, such as ``runs/latest``; its store; or STEPSCOPE_DIR, for the newest.

    Use it in a ``with`` statement, or close it.

    Raises:
        DataError: there is no run at ``path``, or pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError("tables need pyarrow: pip install '/path/to/stepscope[data]'")
    from stepscope_sidecar.data.run import Run

    try:
        return Run(_store(Path(path)))
    except StoreError as error:
        raise DataError(str(error)) from error


def _store(path: Path) -> Path:
    if path.is_file():
        return path.resolve()
    for found in (path / FILE, path / "latest" / FILE):
        if found.is_file():
            return found.resolve()
    raise DataError(f"no run at {path}: name an attempt's folder, such as runs/latest")
