"""
The spans that a store has received and has not put into its tables yet.

Owns reading them out of the requests that they came in. A page asks for the spans of one step after the other; what is
read once is kept for as long as nothing is added to it. That the tables have the others is left to ``reader``.
"""

import sqlite3
from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope_sidecar.rows import SpanRow
from stepscope_sidecar.spans import decode
from stepscope_sidecar.steps import Steps

KEPT = 50_000
"""Spans that are kept at most, of a KiB or so each. An indexer that runs leaves a few hundred."""


class Unindexed:
    """
    Those of one store. Iterate over it within a transaction, as often as wanted.
    """

    def __init__(self, connection: sqlite3.Connection, *, attempt: str) -> None:
        """
        Read by ``connection``; ``attempt`` is the one whose spans these are.
        """
        self._connection = connection
        self._steps = Steps(attempt)
        self._state: tuple[int, int, int] | None = None
        self._rows: list[SpanRow] = []

    def __iter__(self) -> Iterator[SpanRow]:
        """
        In the order they came.
        """
        at, done = self._connection.execute("SELECT inbox_id, spans FROM cursor WHERE name = 'index'").fetchone()
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM inbox").fetchone()
        state = (at, done, last)
        if state == self._state:
            yield from self._rows
            return
        read: list[SpanRow] | None = []
        for row in self._connection.execute("SELECT id, body FROM inbox WHERE id >= ? ORDER BY id", (at,)):
            request = ExportTraceServiceRequest.FromString(row["body"])
            for span in decode(request, steps=self._steps, start=done if row["id"] == at else 0):
                if read is not None:
                    read.append(span)
                    if len(read) > KEPT:
                        read = None
                yield span
        if read is not None:
            self._state, self._rows = state, read
