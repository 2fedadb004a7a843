"""
One run, read table by table.

A table is read when it is asked for and kept; what is written as Parquet goes there piece by piece and is never whole
in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from stepscope_sidecar import nodefolder, orphans, places, worked
from stepscope_sidecar.closing import Closing
from stepscope_sidecar.data import columns, kernels, parquet
from stepscope_sidecar.data.columns import Cells
from stepscope_sidecar.errors import DataError
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import WindowRow

PIECE = 10_000
"""Rows in a piece, some 20 MB of spans."""


class Run(Closing):
    """
    A run that has ended, or as it is so far.
    """

    def __init__(self, store: Path) -> None:
        """
        Use ``data.open``.

        Raises:
            StoreError: the store cannot be read.
        """
        self._reader = open_reader(store)
        self._folder = store.parent
        self._directory = nodefolder.directory(store.parent)
        meta = self._reader.meta
        self._run: Cells = {"run": meta.get("run", ""), "attempt": meta.get("attempt", "")}
        self._sources: Mapping[str, tuple[pa.Schema, Callable[[], Iterable[pa.RecordBatch]]]] = {
            "spans": (columns.SPANS, self._spans),
            "windows": (columns.WINDOWS, self._windows),
            "samples": (columns.SAMPLES, self._samples),
            "kernels": (kernels.KERNELS, self._kernels),
        }

    def close(self) -> None:
        """
        Close the store; tables that were read stay.
        """
        self._reader.close()

    @property
    def name(self) -> str:
        """
        The run's name.
        """
        return str(self._run["run"])

    @property
    def attempt(self) -> str:
        """
        Which start of the run it is.
        """
        return str(self._run["attempt"])

    @cached_property
    def spans(self) -> pa.Table:
        """
        One row for each span, in the order they were received.
        """
        return self._table("spans")

    @cached_property
    def windows(self) -> pa.Table:
        """
        One row for each window that was asked for, on this node or another.
        """
        return self._table("windows")

    @cached_property
    def samples(self) -> pa.Table:
        """
        One row for each sample that a mini-batch consumed.
        """
        return self._table("samples")

    @cached_property
    def kernels(self) -> pa.Table:
        """
        One row for each piece of device work in the recordings that are on this machine.
        """
        return self._table("kernels")

    def to_parquet(self, folder: str | Path, *, tables: Iterable[str] = ()) -> dict[str, int]:
        """
        Write ``tables``, by default all, as ``folder/NAME.parquet``, over what has that name; rows in each.

        Raises:
            DataError: the folder cannot be written, or there is no such table.
        """
        wanted = list(tables) or list(self._sources)
        if unknown := [name for name in wanted if name not in self._sources]:
            raise DataError(f"no table {unknown[0]!r}: there are {', '.join(self._sources)}")
        return {name: parquet.write(Path(folder), name, *self._pieces(name)) for name in wanted}

    def _table(self, name: str) -> pa.Table:
        schema, pieces = self._pieces(name)
        return pa.Table.from_batches(list(pieces), schema=schema)

    def _pieces(self, name: str) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        schema, pieces = self._sources[name]
        return schema, pieces()

    def _spans(self) -> Iterator[pa.RecordBatch]:
        for rows in self._reader.span_pieces(PIECE):
            yield columns.batch((columns.span_cells(row, self._run) for row in rows), columns.SPANS)

    def _windows(self) -> Iterator[pa.RecordBatch]:
        yield columns.batch(map(columns.window_cells, self._rows()), columns.WINDOWS)

    def _samples(self) -> Iterator[pa.RecordBatch]:
        cells = (columns.sample_cells(row, self._run) for row in self._reader.samples())
        yield columns.batch(cells, columns.SAMPLES)

    def _kernels(self) -> Iterator[pa.RecordBatch]:
        for row in self._rows():
            if path := self._recording(row):
                yield from kernels.of(path, row, worked.spans_of(self._reader, row))

    def _rows(self) -> list[WindowRow]:
        """
        The windows, as every reader sees them: those of this node first.
        """
        own = orphans.shown(self._reader.windows(), attended=orphans.attended(self._folder))
        return [*own, *self._reader.elsewhere()]

    def _recording(self, row: WindowRow) -> Path | None:
        """
        Where the recording of a window lies, if it is one and is here.
        """
        return places.enclosed(self._directory, row.artifact)
