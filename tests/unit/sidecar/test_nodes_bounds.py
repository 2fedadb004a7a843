"""
How much an upstream keeps of other nodes, what makes room for what, and where one sees what there was none for.
"""

import asyncio

import pytest

from stepscope_sidecar import nodes, report
from stepscope_sidecar.errors import IntakeError
from stepscope_sidecar.nodes import VANISHED
from stepscope_sidecar.report import Reply
from stepscope_sidecar.reporter import GAP, PERIOD
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT
from tests.unit.sidecar.reporting import Clocks, Upstream, reporter, told
from tests.unit.sidecar.upstreams import Kept


@pytest.fixture
def kept(store: Store) -> Kept:
    """
    A sidecar that nobody has reported to.
    """
    return Kept(store)


def test_one_node_too_many_is_told_so(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    While all runs that are kept live; those that are known go on reporting.
    """
    monkeypatch.setattr(nodes, "MAX_NODES", 2)
    kept.take(told(5))
    kept.take(node="n3")

    with pytest.raises(IntakeError, match="node n4 is not taken: 2 nodes of live runs") as raised:
        kept.take(node="n4")
    assert kept.take(told(6)).known
    assert 429 == raised.value.status
    assert [str(raised.value)] == kept.nodes.troubles


def test_a_run_that_is_over_makes_room(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The one that has been over for longest goes whole, nodes and windows; never this sidecar's own.
    """
    monkeypatch.setattr(nodes, "MAX_NODES", 3)
    kept.take(told(1, run="demo", attempt=ATTEMPT), run="demo", attempt=ATTEMPT, ending=True)
    kept.take(told(5), ending=True)
    kept.take(told(6, run="later"), run="later", ending=True)
    kept.take(told(7, run="new"), run="new")

    assert ["n2 w1 recording", "n2 w6 recording", "n2 w7 recording"] == kept.states()
    assert not kept.take(told(5)).known
    assert ["n2 w1 recording", "n2 w5 recording", "n2 w7 recording"] == kept.states()
    with pytest.raises(IntakeError, match="live runs"):
        kept.take(node="n9", run="another")
    kept.later(VANISHED)
    kept.take(node="n9", run="another")
    assert [] == kept.nodes.troubles


def test_windows_of_one_node_are_bounded(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Those that are kept are kept up to date, and the node stays present; a restart counts what is there.
    """
    monkeypatch.setattr(nodes, "MAX_OF_NODE", 2)
    assert "" == kept.take(told(5), told(6)).refused

    why = "node n2 of r-a: windows are not listed here: 2 of this node, 2 of all other nodes are kept"
    assert why == kept.take(told(7), told(6, "ready")).refused
    assert ["n2 w5 recording", "n2 w6 ready"] == kept.states()
    assert ["present"] == kept.stand()
    assert [why] == kept.nodes.troubles
    kept.restarted()
    assert why == kept.take(told(8)).refused
    assert ["n2 w5 recording", "n2 w6 ready"] == kept.states()


def test_windows_of_all_nodes_are_bounded(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A run that is over makes room for one that lives, whose own windows do not.
    """
    monkeypatch.setattr(nodes, "MAX_WINDOWS", 3)
    kept.take(told(5), told(6), ending=True)
    assert "" == kept.take(told(7, run="new"), told(8, run="new"), run="new").refused
    assert ["n2 w7 recording", "n2 w8 recording"] == kept.states()

    assert "" == kept.take(told(9, run="new"), run="new").refused
    assert "3 of all other nodes" in kept.take(told(10, run="new"), run="new").refused
    assert "3 of all other nodes" in kept.take(told(1), ending=True).refused
    assert ["n2 w7 recording", "n2 w8 recording", "n2 w9 recording"] == kept.states()


def test_a_node_that_had_to_make_room_tells_everything_again() -> None:
    """
    And what upstream has no room for stands in its status.
    """
    upstream = Upstream(Clocks())
    node = reporter(upstream, told(5, "ready"))

    async def run() -> list[float]:
        delays = [await node.round()]
        upstream.known, upstream.refused = False, "full"
        delays.append(await node.round())
        upstream.known = True
        return [*delays, await node.round()]

    assert [PERIOD, GAP, PERIOD] == asyncio.run(run())
    assert ["w5:ready", "w5:ready"] == upstream.windows()
    assert "full" == node.status()["refused"]


def test_a_reply_says_what_is_not_kept() -> None:
    """
    On one line, whatever it was.
    """
    reply = Reply(keeper="k", unix_ns=1, held_ns=0, known=False, refused="a\nb")

    found = report.decode_reply(report.encode_reply(reply))
    assert (False, "a b") == (found.known, found.refused)
