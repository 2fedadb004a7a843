"""
What is received becomes rows and totals, and nothing that is received can end the sidecar.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope_sidecar import inbox, index, rewards, spans
from stepscope_sidecar.index import SLICE, Indexer
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import OwnSpan
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT, batch, body, span
from tests.unit.sidecar.stored import WAIT, count, holds


def told(number: int, **attributes: Any) -> OwnSpan:
    """
    A span that says so of itself; dots in attribute names are written ``__``.
    """
    own = span(number)
    return replace(own, attributes={**own.attributes, **{key.replace("__", "."): it for key, it in attributes.items()}})


@pytest.mark.parametrize(
    "attributes",
    [
        {"rl__rank": "18446744073709551615"},
        {"rl__rank": "9" * 5000},
        {"rl__rank": 2**63 - 1},
        {"rl__step": 2**62 + 1, "rl__reward": 0.5},
        {"rl__step": -(2**63), "rl__reward": 0.5},
        {"param_version": 2**63 - 1, "rl__step": 2**63 - 1},
        {"rl__role": "a" * 20_000, "rl__reward": 0.5},
        {"rl__role": "\x00\x1b[2J", "rl__samples": 2**63 - 1, "rl__reward": 1e308},
    ],
    ids=["rank", "long rank", "last rank", "step", "first step", "version", "long role", "role"],
)
def test_numbers_that_no_run_has_end_nothing(store: Store, path: Path, attributes: dict[str, Any]) -> None:
    """
    The span is kept with what it says, and is of no such rank, step, version or role; what comes after it is read.
    """
    store.append(body(told(1, **attributes)), 1)
    store.append(body(span(2)), 1).result(WAIT)

    assert holds(lambda: count(path, "spans") == 2)
    with open_reader(path) as reader:
        odd, _ = reader.spans()
        totals = reader.totals()
    known = {key.replace("__", "."): it for key, it in attributes.items()}
    assert all(odd.attributes[key] == it or key == "rl.rank" for key, it in known.items())
    assert None in {odd.role, odd.rank, odd.step, odd.param_version}
    assert 0.0 == totals.value(inbox.DROPPED, reason="unreadable")


@pytest.mark.parametrize("error", [OverflowError, ValueError, sqlite3.IntegrityError, sqlite3.DataError])
def test_what_cannot_be_kept_is_set_aside_and_the_next_sidecar_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """
    Nothing of it counts, nothing of it stays; it used to be what each restart died of.
    """
    take = rewards.take

    def fail(connection: sqlite3.Connection, rows: Any) -> None:
        if any(row.name == "poison" for row in rows):
            raise error("too much")
        take(connection, rows)

    monkeypatch.setattr(rewards, "take", fail)
    store = Store.open(path, attempt=ATTEMPT)
    store.append(body(span(1, name="poison"), span(2)), 2)
    store.append(body(span(3)), 1).result(WAIT)
    assert holds(lambda: count(path, "spans") == 1)
    assert store.close(timeout=WAIT)
    assert Store.open(path, attempt=ATTEMPT).close(timeout=WAIT)

    with open_reader(path) as reader:
        totals = reader.totals()
    assert 2.0 == totals.value(inbox.DROPPED, reason="unreadable")
    assert 0.5 == totals.value("stepscope_bucket_seconds_total", role="trainer", bucket="productive")
    assert 1 == count(path, "refused")


def test_roles_that_are_counted_are_few(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each is a label: the first ones are, all are kept.
    """
    monkeypatch.setattr(index, "MAX_ROLES", 3)
    store.append(body(*(span(number, role=f"role-{number}") for number in range(1, 6))), 5).result(WAIT)

    assert holds(lambda: count(path, "spans") == 5)
    with open_reader(path) as reader:
        totals = reader.totals()
        roles = [row.role for row in reader.spans()]
    assert [f"role-{number}" for number in range(1, 6)] == roles
    counted = [totals.value("stepscope_bucket_seconds_total", role=role, bucket="productive") for role in roles if role]
    assert [0.5, 0.5, 0.5, 0.0, 0.0] == counted


def test_a_request_is_read_a_slice_at_a_time_and_each_span_once(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    No list is made of its spans; and after a failure of the disk in its midst it goes on where it was.
    """
    read, ahead, failures = [0], list[int](), ["disk"]
    each, keep = spans.each, Indexer._keep

    def counted(request: ExportTraceServiceRequest) -> Iterator[Any]:
        for pair in each(request):
            read[0] += 1
            yield pair

    def flaky(self: Indexer, connection: sqlite3.Connection, taken: Any) -> None:
        ahead.append(read[0])
        if len(ahead) == 3 and failures:
            failures.pop()
            raise sqlite3.OperationalError("disk I/O error")
        keep(self, connection, taken)

    monkeypatch.setattr(spans, "each", counted)
    monkeypatch.setattr(Indexer, "_keep", flaky)
    store.append(batch(5 * SLICE), 5 * SLICE).result(WAIT)

    assert holds(lambda: count(path, "spans") == 5 * SLICE)
    assert [SLICE, 2 * SLICE, 3 * SLICE] == ahead[:3]
    assert not failures
