"""
Orders for all nodes: whom they are for, that each obeys once, and that everybody can see whom they have reached.
"""

import asyncio
from pathlib import Path

import orjson
import pytest

from stepscope import wire
from stepscope_sidecar import report
from stepscope_sidecar.dispatch import Dispatch
from stepscope_sidecar.live import Live
from stepscope_sidecar.pages import Others, Shown, run_page
from stepscope_sidecar.plan import UPSTREAM, ordered
from stepscope_sidecar.report import Order, Reply, ReportError
from stepscope_sidecar.reporter import Teller
from stepscope_sidecar.rows import NodeRow
from stepscope_sidecar.store import Store
from tests.unit.sidecar.reporting import Clocks, Upstream, reporter
from tests.unit.sidecar.rig import Rig, started

HUB = ("hub", "h1")
N1, N2 = Teller(node="n1", run="r", attempt="a"), Teller(node="n2", run="r", attempt="a")
LATER = Teller(node="n1", run="r", attempt="b")


def dispatch(store: Store, now: int = 100) -> Dispatch:
    """
    Of an upstream, at ``now``.
    """
    return Dispatch(store, HUB, unix_ns=lambda: now)


def test_an_order_is_for_the_runs_that_report_at_that_time(store: Store) -> None:
    """
    For nodes of them that come later too, and for no run that begins later; a restart forgets nothing.
    """
    orders = dispatch(store)
    assert None is orders.answer(N1, obeys=0)
    orders.give("5,8", stopped=False, runs={("r", "a")})
    store.submit(lambda connection: None).result(10)

    for found in (orders, dispatch(store)):
        expected = Order(number=100, steps="5,8")
        assert [expected, expected, None] == [found.answer(teller, obeys=0) for teller in (N1, N2, LATER)]
        assert expected == found.answer(Teller(node="n9", run="hub", attempt="h1"), obeys=0)
        assert None is found.answer(N1, obeys=100)


def test_a_later_order_has_a_greater_number(store: Store) -> None:
    """
    Also where the clock was set back, and where the store with the former ones is lost.
    """
    orders = dispatch(store)
    orders.give("5", stopped=False, runs=[])
    store.submit(lambda connection: None).result(10)
    again = dispatch(store, now=50)
    again.give("", stopped=True, runs={("r", "a")})

    assert Order(number=101, stopped=True) == again.answer(N1, obeys=100)


def test_a_store_whose_clock_is_behind_the_former_one_s_is_obeyed(store: Store) -> None:
    """
    Also by nodes that had obeyed greater numbers: they have not been reached until they say the number of the order.
    """
    orders = dispatch(store)
    orders.answer(N1, obeys=2000)
    orders.give("5", stopped=False, runs={("r", "a")})
    assert Order(number=2001, steps="5") == orders.answer(N1, obeys=2000)
    late = orders.answer(N2, obeys=3000)
    assert Order(number=3001, steps="5") == late
    assert [] == orders.status([N1, N2])["reached"]
    store.submit(lambda connection: None).result(10)

    for found in (orders, dispatch(store)):
        assert [None, None] == [found.answer(N1, obeys=2001), found.answer(N2, obeys=3001)]
        assert ["n1 of r-a", "n2 of r-a"] == found.status([N1, N2])["reached"]
    orders.give("6", stopped=False, runs={("r", "a")})
    assert [Order(number=3002, steps="6")] * 2 == [orders.answer(N1, obeys=2001), orders.answer(N2, obeys=3001)]


def test_a_number_that_no_clock_shows_numbers_no_order(store: Store) -> None:
    """
    A node cannot have the upstream run out of numbers; it counts as not reached.
    """
    orders = dispatch(store)
    orders.answer(N1, obeys=2**63 - 1)
    orders.give("5", stopped=False, runs={("r", "a")})

    assert Order(number=100, steps="5") == orders.answer(N1, obeys=2**63 - 1)
    assert ["n1 of r-a"] == orders.status([N1])["waiting"]
    assert Order(number=100, steps="5") == orders.answer(N2, obeys=0)


def test_whom_an_order_has_reached_is_shown(store: Store) -> None:
    """
    In the status, and on the page in a sentence; nodes that are not there are in neither list.
    """
    orders = dispatch(store)
    assert {} == orders.status([N1])
    orders.give("", stopped=True, runs={("r", "a"), HUB})
    orders.answer(N1, obeys=100)
    orders.answer(N2, obeys=99)
    own = Teller(node="n3", run="hub", attempt="h1")
    found = orders.status([N2, LATER, N1, own])

    assert {"order": "stop", "reached": ["n1 of r-a"], "waiting": ["n2 of r-a", "n3"]} == found
    orders.forget(N1)
    assert [] == orders.status([N1])["reached"]
    others = Others(nodes=[NodeRow(node="n1", run="r", attempt="a")])
    page = run_page({"ordered": found}, shown=Shown(), estimates={}, others=others)
    assert "Last order: stop. Obeyed by n1 of r-a; not yet by n2 of r-a, n3," in page
    hostile = {"order": "<b>", "reached": ["<i>"] * 20, "waiting": 3}
    page = run_page({"ordered": hostile}, shown=Shown(), estimates={}, others=others)
    assert not [tag for tag in ("<b>", "<i>") if tag in page]
    assert "and 8 more." in page


def test_a_node_obeys_once_and_says_so_at_once() -> None:
    """
    What it could not obey it does not try again, and does not say that it obeyed.
    """
    upstream = Upstream(Clocks())
    upstream.order = Order(number=7, steps="5")
    heard: list[Order] = []

    def obey(order: Order) -> bool:
        heard.append(order)
        return order.number != 8

    node = reporter(upstream, obey=obey)

    async def run() -> None:
        await node.round()
        assert node._now.is_set()
        await node.round()
        upstream.order = Order(number=8, steps="6")
        await node.round()
        await node.round()
        upstream.order = Order(number=9, stopped=True)
        await node.round()
        await node.round()

    asyncio.run(run())

    assert [7, 8, 9] == [order.number for order in heard]
    assert [0, 7, 7, 7, 7, 9] == [item.obeys for item in upstream.reports]


def test_a_node_that_leaves_obeys_no_more() -> None:
    """
    Its last report is no reason to begin something.
    """
    upstream = Upstream(Clocks())
    node = reporter(upstream, obey=lambda order: pytest.fail("obeyed"))

    async def run() -> None:
        await node.round()
        upstream.order = Order(number=7, steps="5")
        await node.leave(5)

    asyncio.run(run())


def test_an_order_does_what_one_given_here_does(tmp_path: Path) -> None:
    """
    Open windows are told to close, processes have the new selection; that it was obeyed outlives a restart.
    """
    rig = Rig(tmp_path)
    live = Live(rig.controller, node="n1", pending=lambda: 0, unsaved=lambda: 0, estimates=dict)
    process, link = rig.register()
    rig.controller.handle(process, wire.Version(step=5, param_version=4))
    identity = rig.open(process, link)
    rig.controller.handle(process, started(identity))

    assert live.obey(Order(number=7, stopped=True))
    assert wire.Stop(window=identity, reason="stopped_by_user") in link.sent
    assert wire.Selected(selection="5,8-9", revision=2, stopped=True, source="api") in link.sent
    assert live.obey(Order(number=8, stopped=True))
    assert 8 == ordered(rig.ledger.plans[-1].source)
    assert live.obey(Order(number=9, steps="12"))
    assert wire.Selected(selection="12", revision=4, stopped=False, source="api") == link.last()
    assert not live.obey(Order(number=10, steps="a-b"))
    assert "12" == rig.controller.plan.selection.text


def test_who_ordered_is_told_to_whoever_gave_the_order(tmp_path: Path) -> None:
    """
    The answer names this node and the others that the order is for.
    """
    rig = Rig(tmp_path)
    given: list[tuple[str, bool]] = []

    def order(steps: str, stopped: bool) -> list[str]:
        given.append((steps, stopped))
        return ["n2"]

    live = Live(rig.controller, node="n1", pending=lambda: 0, unsaved=lambda: 0, estimates=dict, order=order)
    answers = [live.set_selection("12"), live.stop()]

    assert [("12", False), ("", True)] == given
    assert [("n1", ["n2"])] * 2 == [(answer["node"], answer["nodes"]) for answer in answers]


@pytest.mark.parametrize(
    ("source", "number"),
    [(UPSTREAM.format(7), 7), ("api", 0), ("environment", 0), ("file /x order 7", 0), (UPSTREAM.format("x"), 0)],
)
def test_the_source_of_a_selection_tells_of_the_order(source: str, number: int) -> None:
    """
    So that a restarted sidecar finds in its store what it has obeyed.
    """
    assert number == ordered(source)


@pytest.mark.parametrize(
    "order", [3, {"number": "7"}, {"number": True}, {"number": 1, "steps": 3}, {"number": 1, "steps": "1" * 70_000}]
)
def test_what_is_no_order_is_no_reply(order: object) -> None:
    """
    Something that is no sidecar of ours may answer anything.
    """
    body = {"keeper": "k", "unix_ns": 1, "held_ns": 0}
    reply = Reply(keeper="k", unix_ns=1, held_ns=0, order=Order(number=7, steps="5"))

    assert reply == report.decode_reply(report.encode_reply(reply))
    with pytest.raises(ReportError):
        report.decode_reply(orjson.dumps({**body, "order": order}))
