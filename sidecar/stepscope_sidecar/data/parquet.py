"""
Writes a table as a Parquet file, piece by piece.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stepscope_sidecar.errors import DataError

COMPRESSION = "zstd"
"""A tenth of the text; every reader of Parquet has it."""


def write(folder: Path, name: str, schema: pa.Schema, pieces: Iterable[pa.RecordBatch]) -> int:
    """
    Write ``pieces`` as ``folder/NAME.parquet``, whole or not at all; the number of rows.

    Raises:
        DataError: it cannot be written.
    """
    target = folder / f"{name}.parquet"
    part = folder / f".{name}.parquet.{os.getpid()}.part"
    rows = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with pq.ParquetWriter(part, schema, compression=COMPRESSION) as writer:
                for piece in pieces:
                    writer.write_batch(piece)
                    rows += piece.num_rows
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}") from error
    return rows
