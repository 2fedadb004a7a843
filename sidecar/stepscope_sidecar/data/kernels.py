"""
The kernels of recordings as rows: what ran on a device, where and when, and which span asked for it.

Reads each recording through ``traces``. A recording that cannot be read has no rows; why is in its window's
``detail`` or in what ``stepscope show`` says of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from stepscope_sidecar import traces
from stepscope_sidecar.rows import SpanRow, WindowRow
from stepscope_sidecar.show import parents
from stepscope_sidecar.traces import Clock, Kind, Trace
from stepscope_sidecar.traces.attribution import attribute

TEXT, WHOLE, SMALL = pa.string(), pa.int64(), pa.int32()

NAMED = pa.dictionary(SMALL, TEXT)
"""A few hundred names for a million rows."""

KERNELS = pa.schema(
    [
        *(("run", TEXT), ("attempt", TEXT), ("window", TEXT), ("step", WHOLE), ("role", TEXT), ("rank", SMALL)),
        *(
            ("tool", TEXT),
            ("recorded_rank", SMALL),
            ("kind", NAMED),
            ("name", NAMED),
            ("start_unix_ns", WHOLE),
            ("start_ns", WHOLE),
        ),
        *(("duration_ns", WHOLE), ("device", SMALL), ("stream", WHOLE), ("correlation", WHOLE)),
        *(("span_id", NAMED), ("span_name", NAMED)),
    ]
)


def of(path: Path, row: WindowRow, spans: Sequence[SpanRow]) -> Iterator[pa.RecordBatch]:
    """
    The device work in the recording of the window ``row``, which lies at ``path``; one piece for each file.

    ``spans`` are of the window's process, in its steps.
    """
    for trace in traces.open_all(path):
        yield piece(trace, row, parents(trace, row, spans))


def piece(trace: Trace, row: WindowRow, above: Mapping[str, str]) -> pa.RecordBatch:
    """
    The device work in one trace; ``above`` has the parent of each span.

    ``start_unix_ns`` is null where the file has no clock that others share, ``span_id`` where no span asked for it.
    """
    found = attribute(trace, parents=above)
    places = found.rows
    mark_of = {mark.row: place for place, mark in enumerate(found.marks)}
    owner = np.array([mark_of.get(event, traces.NONE) for event in found.owner.tolist()], np.int64)
    start = trace.start_ns[places]
    epoch = trace.header.clock == Clock.EPOCH

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), len(places))

    def known(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]], kind: pa.DataType) -> pa.Array:
        return pa.array(values, mask=values == traces.NONE).cast(kind)

    used, name = np.unique(trace.name[places], return_inverse=True)
    kinds, kind = np.unique(trace.kind[places], return_inverse=True)
    return pa.RecordBatch.from_arrays(
        [
            same(row.run, TEXT),
            same(row.attempt, TEXT),
            same(row.window, TEXT),
            same(row.step, WHOLE),
            same(row.role, TEXT),
            same(row.rank, SMALL),
            same(row.tool, TEXT),
            same(trace.header.rank, SMALL),
            _named(kind, [Kind(item).name.lower() for item in kinds.tolist()]),
            _named(name, [trace.names[item] for item in used.tolist()]),
            pa.array(start) if epoch else pa.nulls(len(places), WHOLE),
            pa.array(start),
            pa.array(trace.duration_ns[places]),
            known(trace.device[places], SMALL),
            known(trace.stream[places], WHOLE),
            known(trace.correlation[places], WHOLE),
            _named(owner, [mark.span_id for mark in found.marks]),
            _named(owner, [mark.name for mark in found.marks]),
        ],
        schema=KERNELS,
    )


def _named(places: np.ndarray[tuple[int, ...], np.dtype[np.int64]], values: list[str]) -> pa.Array:
    where = pa.array(places, SMALL, mask=places == traces.NONE)
    return pa.DictionaryArray.from_arrays(where, pa.array(values, TEXT))
