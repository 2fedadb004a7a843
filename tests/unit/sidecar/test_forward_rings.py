"""
Sidecars that are each other's upstream: every one keeps the spans of all, and none goes round for ever.
"""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from stepscope_sidecar import chain, inbox, schema
from stepscope_sidecar.chain import LONGEST, Chain
from stepscope_sidecar.forward import Forwarder
from stepscope_sidecar.intake import Intake
from stepscope_sidecar.otlp import PROTOBUF, VIA, receiver
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.store import Store
from stepscope_sidecar.transport import Answer
from tests.unit.sidecar.bodies import ATTEMPT, batch, body, span
from tests.unit.sidecar.stored import WAIT, holds


class Onward:
    """
    The way to the next sidecar: its receiver, without a network.
    """

    def __init__(self) -> None:
        """
        Leads nowhere until ``intake`` is set.
        """
        self.intake: Intake | None = None
        self.sent: list[Chain] = []

    def send(self, content: bytes, *, via: Chain) -> Answer:
        """
        POST ``content`` there; without one, it is taken.
        """
        self.sent.append(via)
        return Answer(status=post(self.intake, content, chain.written(via)) if self.intake else 200)

    def close(self) -> None:
        """
        Nothing is open.
        """


@dataclass
class Sidecar:
    """
    The pieces of one that spans pass.
    """

    store: Store
    reader: Reader
    onward: Onward
    forwarder: Forwarder

    @property
    def name(self) -> str:
        """
        What it adds to the chain.
        """
        return self.forwarder.instance

    def receive(self, *numbers: int, via: Chain = ()) -> None:
        """
        Take a request with each of these spans.
        """
        for number in numbers:
            self.store.append(body(span(number)), 1, via).result(WAIT)

    def spans(self) -> list[int]:
        """
        The spans that it keeps.
        """
        return sorted(int(row.span_id, 16) for row in self.reader.spans())

    def total(self, name: str, **labels: str) -> float:
        """
        What it has counted.
        """
        return self.reader.totals().value(name, **labels)


def post(intake: Intake, content: bytes, *via: str) -> int:
    """
    The status that the receiver of ``intake`` answers with.
    """

    async def send() -> int:
        transport = httpx.ASGITransport(app=receiver(intake))
        headers = [(b"content-type", PROTOBUF.encode()), *((VIA.encode(), value.encode("latin-1")) for value in via)]
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            return (await client.post("/v1/traces", content=content, headers=headers)).status_code

    return asyncio.run(send())


@contextmanager
def sidecars(folder: Path, *names: str) -> Iterator[list[Sidecar]]:
    """
    Sidecars of these names, that lead nowhere yet.
    """
    with ExitStack() as stack:
        found = []
        for name in names:
            store = Store.open(folder / f"{name}.db", attempt=ATTEMPT, outbox=True)
            stack.callback(store.close)
            onward = Onward()
            forwarder = Forwarder(store=store, transport=onward, jitter=lambda: 1.0, instance=name)
            reader = stack.enter_context(open_reader(store.path))
            found.append(Sidecar(store, reader, onward, forwarder))
        yield found


def circle(ring: Sequence[Sidecar]) -> None:
    """
    Make each the upstream of the one before it.
    """
    for before, after in zip(ring, [*ring[1:], ring[0]], strict=True):
        before.onward.intake = Intake(after.store, instance=after.name)


def rest(ring: Sequence[Sidecar]) -> int:
    """
    Forward until none has anything left; how many rounds that took.
    """
    rounds = 0
    while True:
        busy = [item for item in ring if item.forwarder.round(item.reader) is not None]
        if not busy:
            return rounds
        rounds += len(busy)
        assert rounds < 100


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")])
def test_a_ring_comes_to_rest(tmp_path: Path, names: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    """
    Each sidecar of a ring gets each span and none goes round twice; that is counted, and said once where it is seen.
    """
    with sidecars(tmp_path, *names) as ring:
        circle(ring)
        for number, item in enumerate(ring, start=1):
            item.receive(number, 10 + number)
        rest(ring)
        expected = sorted(number + ten for number in range(1, len(ring) + 1) for ten in (0, 10))

        for item in ring:
            assert expected == item.spans()
            assert 0.0 == item.total(inbox.DROPPED, reason="refused")
            assert 0 == item.reader.pending()
        looped = [item.total(inbox.DROPPED, reason="looped") for item in ring]
        assert 2.0 * len(ring) == sum(looped)
        assert [bool(count) for count in looped] == [item.forwarder.circling for item in ring]
        assert sum(map(bool, looped)) == caplog.text.count("leads round to this sidecar")


def test_one_that_enters_a_ring_from_outside_is_not_dropped(tmp_path: Path) -> None:
    """
    Spans of a node whose upstream is in a ring reach all of it, and go round once.
    """
    with sidecars(tmp_path, "n", "a", "b") as (node, *ring):
        circle(ring)
        node.onward.intake = Intake(ring[0].store, instance="a")
        node.receive(1)
        rest([node, *ring])

        assert [[1], [1], [1]] == [item.spans() for item in (node, *ring)]
        assert [0.0, 1.0, 0.0] == [item.total(inbox.DROPPED, reason="looped") for item in (node, *ring)]


def test_spans_of_many_nodes_go_out_together(tmp_path: Path) -> None:
    """
    What nodes send in turn shares requests with what is made here, and their chain names all; what came further goes
    alone.
    """
    with sidecars(tmp_path, "hub") as (hub,):
        for number, via in enumerate([("n1",), ("n2",), ("n1",), (), ("n3", "n4"), ("n2",)], start=1):
            hub.receive(number, via=via)
        rest([hub])

        assert [("n1", "n2", "hub"), ("n3", "n4", "hub"), ("n2", "hub")] == hub.onward.sent
        assert 6.0 == hub.total(inbox.FORWARDED)


def test_what_has_come_round_stands_in_nobodys_way(tmp_path: Path) -> None:
    """
    Of what waits together, what came back is passed over where it stands; all else is sent, in order.
    """
    with sidecars(tmp_path, "a") as (item,):
        item.receive(1, via=("b",))
        item.receive(2, 3, via=("a", "b"))
        item.receive(4, via=("b",))
        item.receive(5, via=tuple(f"n{number}" for number in range(LONGEST)))
        rest([item])

        assert [("b", "a"), ("b", "a")] == item.onward.sent
        assert 2.0 == item.total(inbox.FORWARDED)
        assert 3.0 == item.total(inbox.DROPPED, reason="looped")
        assert [1, 2, 3, 4, 5] == item.spans()
        assert holds(lambda: item.reader.waiting(parcels=9, limit=9) == [])


def test_a_header_from_a_stranger_is_no_obstacle(tmp_path: Path) -> None:
    """
    Nonsense in the header is ignored and the spans are taken and sent on; only our own name at its end is refused.
    """
    with sidecars(tmp_path, "a") as (item,):
        intake = Intake(item.store, instance="a")

        assert 200 == post(intake, body(span(1)), "\u00ff,; drop table,," + "x" * 20_000, "n1")
        assert 200 == post(intake, body(span(2)), ",".join(["x"] * 5_000))
        assert 200 == post(intake, body(span(3)), "a,b")
        assert 400 == post(intake, body(span(4)), "b,a")
        rest([item])
        assert [("n1", "a")] == item.onward.sent
        assert [1, 2, 3] == item.spans()
        assert 2.0 == item.total(inbox.DROPPED, reason="looped")


def test_a_store_of_an_earlier_release_is_made_wider(tmp_path: Path) -> None:
    """
    What waits in an inbox that knows no chain is forwarded, and what comes has one; an older release can write there.
    """
    path = tmp_path / "a.db"
    Store.open(path, attempt=ATTEMPT, outbox=True).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.execute("ALTER TABLE inbox DROP COLUMN via")
        older.execute("INSERT INTO inbox (received_unix_ns, spans, body) VALUES (0, 2, ?)", (batch(2),))
    with sidecars(tmp_path, "a") as (item,):
        item.receive(3, via=("b",))
        rest([item])

        assert [("b", "a")] == item.onward.sent
        assert [1, 2, 3] == item.spans()
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        assert (schema.VERSION,) == older.execute("PRAGMA user_version").fetchone()
        older.execute("INSERT INTO inbox (received_unix_ns, spans, body) VALUES (0, 1, ?)", (body(span(4)),))
    with sidecars(tmp_path, "a") as (item,):
        rest([item])
        assert [("a",)] == item.onward.sent
