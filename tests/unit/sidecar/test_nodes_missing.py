"""
Recordings that another node's processes did not make: how the upstream hears of them, keeps them and shows them.
"""

import asyncio
from pathlib import Path

import orjson
import pytest

from stepscope_sidecar import absences, render, report, windowlist
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.report import MAX_MISSING, Report
from stepscope_sidecar.rows import MissingRow
from stepscope_sidecar.serve import application
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT
from tests.unit.sidecar.calling import Caller
from tests.unit.sidecar.ledgers import kept, ledger_of, step_spans
from tests.unit.sidecar.reporting import Clocks, Upstream, reporter, told
from tests.unit.sidecar.stored import receive
from tests.unit.sidecar.test_pages import Page
from tests.unit.sidecar.upstreams import Kept


def lacks(rank: int, *, step: int = 5, reason: str = "not_asked") -> MissingRow:
    """
    A recording that ``rank`` did not make.
    """
    return MissingRow(step=step, role="trainer", rank=rank, reason=reason)


@pytest.fixture
def hub(store: Store) -> Kept:
    """
    A sidecar that nobody has reported to.
    """
    return Kept(store)


def ranks(store: Store) -> list[tuple[str, int, int]]:
    """
    Node, step and rank of what is kept of other nodes.
    """
    with open_reader(store.path) as reader:
        return [(row.node, row.step, row.rank) for row in reader.missing_elsewhere()]


def test_what_is_no_missing_recording_is_left_out() -> None:
    """
    The report with its windows is taken all the same; what a former release sends has none.
    """
    given = orjson.loads(report.encode(Report(node="n2", run="r", attempt="a", missing=(lacks(1),))))
    good = given["missing"][0]
    bad = [{**good, "rank": -1}, {**good, "role": "\x1b[2J"}, {**good, "step": "5"}, {**good, "reason": None}, {}, 7]

    assert (lacks(1),) == report.decode(orjson.dumps({**given, "missing": [*bad, good]})).missing
    for none in ({}, {"missing": None}, {"missing": 5}, {"missing": {"step": 5}}):
        assert () == report.decode(orjson.dumps({**given, "missing": [], **none})).missing


def test_each_is_told_once_and_all_to_another_upstream() -> None:
    """
    Those in the store after a start, then what is new, in as many reports as it takes.
    """
    upstream = Upstream(Clocks())
    node = reporter(upstream, told(5), missing=[lacks(1)])

    async def run() -> None:
        await node.round()
        node.lacking([lacks(rank) for rank in range(2, MAX_MISSING + 3)])
        for _ in range(3):
            await node.round()
        assert 0 == node.unsent
        upstream.keeper = "k2"
        await node.round()
        await node.round()

    asyncio.run(run())

    assert [1, MAX_MISSING, 1, 0, 0, 1] == [len(item.missing) for item in upstream.reports]
    assert (lacks(1),) == upstream.reports[-1].missing


def test_what_an_upstream_that_is_away_was_not_told_is_told_before_the_end() -> None:
    """
    The last report says that it is the last only when nothing is left.
    """
    upstream = Upstream(Clocks(), (503, b""))
    node = reporter(upstream)

    async def run() -> None:
        node.lacking([lacks(rank) for rank in range(MAX_MISSING + 1)])
        await node.round()
        await node.leave(10)

    asyncio.run(run())

    assert [(MAX_MISSING, False), (1, True)] == [(len(item.missing), item.ending) for item in upstream.reports]


def test_a_node_does_not_say_of_another_s_ranks_that_they_never_registered() -> None:
    """
    It may have been alone until an upstream answered; nor is a role told that no report has room for.
    """
    endless = MissingRow(step=5, role="r" * 300, rank=0, reason="not_asked")

    assert [lacks(1)] == absences.own([lacks(1), lacks(2, reason="never_registered"), endless])


def test_an_upstream_keeps_each_once_and_counts_none(hub: Kept, store: Store) -> None:
    """
    Told twice it is there once. The metric is the node's own: an alert on all sidecars fires once.
    """
    hub.take(missing=[lacks(1), lacks(0)])
    hub.take(missing=[lacks(1)])
    hub.take(node="n3", missing=[lacks(2, step=8)])

    assert [("n2", 5, 0), ("n2", 5, 1), ("n3", 8, 2)] == ranks(store)
    with open_reader(store.path) as reader:
        assert [] == reader.missing()
        assert 0.0 == reader.totals().value("stepscope_missing_ranks", role="trainer")


def test_the_oldest_make_room_and_a_run_that_is_dropped_takes_its_own(
    hub: Kept, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    This node's own run is never dropped.
    """
    monkeypatch.setattr(absences, "MAX_KEPT", 3)
    hub.take(missing=[lacks(0), lacks(1)], run="demo", attempt=ATTEMPT)
    hub.take(node="n3", missing=[lacks(2), lacks(3)], ending=True)
    assert [("n2", 5, 1), ("n3", 5, 2), ("n3", 5, 3)] == ranks(store)

    monkeypatch.setattr("stepscope_sidecar.nodes.MAX_NODES", 2)
    hub.take(node="n4", run="later")

    assert [("n2", 5, 1)] == ranks(store)


def test_the_upstream_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    On the page of the step, where the window of a process says more, by the API with the node, and on the command line.
    """
    path = tmp_path / "run-a1" / "stepscope.db"
    path.parent.mkdir()
    with kept(path) as store:
        ledger_of(store, tmp_path).missing({"trainer": 1}, [lacks(3)])
        receive(store, step_spans(5, seconds=1.0))
        late = told(5, "failed", rank=2, reason="start_error")
        Kept(store).take(told(5, "ready", window="w0"), late, missing=[lacks(1), lacks(2, reason="start_error")])
    caller = Caller(application(path, token=""), host="127.0.0.1")
    words = Page(caller.get("/steps/5").text).words()
    listed = caller.get("/api/missing?step=5").json()
    windowlist.print_missing(render.window_objects(path.parent), path.parent)

    assert "1 of 4 recordings that were expected are there." in words
    assert "trainer 1 not_asked trainer 2 start_error trainer 3 not_asked" in words
    n2 = {"node": "n2", "run": "r", "attempt": "a", "step": 5, "role": "trainer"}
    own = {**n2, "node": "", "run": "run", "attempt": "a1"}
    assert [
        {**n2, "rank": 1, "reason": "not_asked"},
        {**n2, "rank": 2, "reason": "start_error"},
        {**own, "rank": 3, "reason": "not_asked"},
    ] == listed
    assert [] == caller.get("/api/missing?step=6").json()
    assert 400 == caller.get("/api/missing?step=x").status_code
    assert (
        "missing: step 5, trainer 1 on n2: not_asked\nmissing: step 5, trainer 3: not_asked\n"
    ) == capsys.readouterr().out


def test_a_rank_that_is_always_missing_does_not_fill_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The last ones are named, the others counted.
    """
    path = tmp_path / "stepscope.db"
    with kept(path) as store:
        Kept(store).take(missing=[lacks(1, step=step) for step in range(windowlist.MAX_MISSING + 2)])
    windowlist.print_missing([], tmp_path)
    lines = capsys.readouterr().out.splitlines()

    assert "missing: step 2, trainer 1 on n2: not_asked" == lines[0]
    assert "and 2 before" == lines[-1]
    assert windowlist.MAX_MISSING + 1 == len(lines)
