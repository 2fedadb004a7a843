"""
Totals that outlive the sidecar: counters, last values and histograms, kept in the store.

All functions take the writer's connection and run in the transaction of their caller, so that what is counted and
the count change together. Leaves the names to ``stepscope.names`` and the exposition to ``metrics.py``.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import orjson

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)
"""Steps take from some hundredths of a second (the demo) to most of an hour (large models)."""

BOUNDS: dict[str, tuple[float, ...]] = {
    "stepscope_step_seconds": SECONDS,
    "stepscope_window_open_lag_seconds": (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    "stepscope_sample_staleness_versions": (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0),
}
"""Upper bounds of each histogram's buckets. The open lag aims at 2 ms (p50) and 5 ms (p99); its deadline is 1 s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exemplar:
    """
    One example behind a count: the span, its step, the value that it added, and when.
    """

    trace_id: str
    span_id: str
    step: int
    value: float = 0.0
    unix_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """
    A counter, or the last value of a gauge.
    """

    name: str
    labels: dict[str, str]
    value: float
    exemplar: Exemplar | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """
    Observations by bucket: ``counts`` has one entry per bound and one beyond the last; not cumulative.
    """

    name: str
    labels: dict[str, str]
    bounds: tuple[float, ...]
    counts: list[int]
    sum: float
    exemplars: list[Exemplar | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """
    Everything that is counted, as of one moment.
    """

    values: list[Total]
    histograms: list[Histogram]

    def value(self, name: str, **labels: str) -> float:
        """
        One counter; 0 if nothing has been counted.
        """
        return next((item.value for item in self.values if item.name == name and item.labels == labels), 0.0)

    def histogram(self, name: str, **labels: str) -> Histogram | None:
        """
        One histogram; None if nothing has been observed.
        """
        return next((item for item in self.histograms if item.name == name and item.labels == labels), None)


def add(
    connection: sqlite3.Connection,
    name: str,
    labels: Mapping[str, str],
    amount: float,
    exemplar: Exemplar | None = None,
) -> None:
    """
    Count ``amount`` more.
    """
    connection.execute(
        "INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
        " SET value = value + excluded.value, exemplar = coalesce(excluded.exemplar, exemplar)",
        (name, _key(labels), amount, _exemplar_text(exemplar)),
    )


def put(connection: sqlite3.Connection, name: str, labels: Mapping[str, str], value: float) -> None:
    """
    Keep ``value`` in place of what was kept before.
    """
    connection.execute("INSERT OR REPLACE INTO totals VALUES (?, ?, ?, NULL)", (name, _key(labels), value))


def kept(connection: sqlite3.Connection, name: str, labels: Mapping[str, str]) -> float | None:
    """
    What is kept now; None for nothing.
    """
    row = connection.execute("SELECT value FROM totals WHERE name = ? AND labels = ?", (name, _key(labels))).fetchone()
    return None if row is None else float(row["value"])


def reach(connection: sqlite3.Connection, role: str, version: int, *, unix_ns: int) -> None:
    """
    A process of ``role`` has reached ``version``: if none had, keep it, and that it was at ``unix_ns``.
    """
    labels = {"role": role}
    changed = connection.execute(
        "INSERT INTO totals VALUES (?, ?, ?, NULL) ON CONFLICT DO UPDATE SET value = excluded.value"
        " WHERE excluded.value > value",
        ("stepscope_param_version", _key(labels), version),
    ).rowcount
    if changed:
        put(connection, "stepscope_param_version_timestamp_seconds", labels, unix_ns / 1e9)


def observe(
    connection: sqlite3.Connection,
    name: str,
    labels: Mapping[str, str],
    values: Iterable[float],
    exemplar: Exemplar | None = None,
) -> None:
    """
    Add ``values`` to a histogram of :data:`BOUNDS`; the exemplar goes to the bucket of its own value.
    """
    bounds = BOUNDS[name]
    key = _key(labels)
    row = connection.execute("SELECT * FROM histograms WHERE name = ? AND labels = ?", (name, key)).fetchone()
    counts = orjson.loads(row["counts"]) if row else [0] * (len(bounds) + 1)
    exemplars = orjson.loads(row["exemplars"]) if row else [None] * (len(bounds) + 1)
    total = row["sum"] if row else 0.0
    for value in values:
        counts[bisect_left(bounds, value)] += 1
        total += value
    if exemplar:
        exemplars[bisect_left(bounds, exemplar.value)] = asdict(exemplar)
    connection.execute(
        "INSERT OR REPLACE INTO histograms VALUES (?, ?, ?, ?, ?)",
        (name, key, orjson.dumps(counts).decode(), total, orjson.dumps(exemplars).decode()),
    )


def load(connection: sqlite3.Connection) -> Totals:
    """
    All totals.
    """
    return Totals(
        values=[
            Total(
                name=row["name"],
                labels=orjson.loads(row["labels"]),
                value=row["value"],
                exemplar=_exemplar(orjson.loads(row["exemplar"]) if row["exemplar"] else None),
            )
            for row in connection.execute("SELECT * FROM totals ORDER BY name, labels")
        ],
        histograms=[
            Histogram(
                name=row["name"],
                labels=orjson.loads(row["labels"]),
                bounds=BOUNDS[row["name"]],
                counts=orjson.loads(row["counts"]),
                sum=row["sum"],
                exemplars=[_exemplar(item) for item in orjson.loads(row["exemplars"])],
            )
            for row in connection.execute("SELECT * FROM histograms ORDER BY name, labels")
            if row["name"] in BOUNDS
        ],
    )


def _key(labels: Mapping[str, str]) -> str:
    return orjson.dumps(dict(labels), option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()


def _exemplar(data: dict[str, object] | None) -> Exemplar | None:
    return Exemplar(**data) if data else None  # type: ignore[arg-type]  # written by _exemplar_text below


def _exemplar_text(exemplar: Exemplar | None) -> str | None:
    return orjson.dumps(asdict(exemplar)).decode() if exemplar else None
