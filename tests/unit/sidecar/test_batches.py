"""
Reports that are not taken: the window that is the cause is found, and nothing else is lost.
"""

import asyncio

from stepscope_sidecar import report
from stepscope_sidecar.reporter import FIRST_BACKOFF, GAP, Reporter
from tests.unit.sidecar.reporting import Clocks, Upstream, reporter, told


class Picky(Upstream):
    """
    One that takes no report with a certain window.
    """

    def __init__(self, clocks: Clocks, unwanted: str) -> None:
        """
        It is named ``unwanted``.
        """
        super().__init__(clocks)
        self.unwanted = unwanted

    async def send(self, body: bytes) -> tuple[int, bytes]:
        """
        Take ``body``, or not.
        """
        if self.unwanted in {row.window for row in report.decode(body).windows}:
            return 400, f"{self.unwanted} is no window".encode()
        return await super().send(body)


async def all_told(node: Reporter) -> None:
    """
    Report until nothing is left; a hundred reports must do.
    """
    for _ in range(100):
        await node.round()
        if not node.unsent:
            return


def test_a_report_that_is_refused_does_not_stand_in_the_way() -> None:
    """
    The one window that is not taken is found and given up, where one can see it; all others are told. When it has
    changed it is tried by itself, and once it is taken nothing more is said of it.
    """
    upstream = Picky(Clocks(), "w50")
    node = reporter(upstream, *(told(step) for step in range(80)))

    asyncio.run(all_told(node))

    assert {f"w{step}" for step in range(80)} - {"w50"} == {
        item.removesuffix(":recording") for item in upstream.windows()
    }
    assert "window w50: 400 w50 is no window" == node.status()["refused"]
    assert ["not taken upstream: window w50: 400 w50 is no window"] == node.troubles
    node.changed(told(50, "ready"))
    node.changed(told(81))
    asyncio.run(all_told(node))
    assert ["w81:recording"] == upstream.windows()[79:]
    upstream.unwanted = ""
    node.changed(told(50, "ready"))
    asyncio.run(all_told(node))
    assert "w50:ready" == upstream.windows()[-1]
    assert ([], False) == (node.troubles, "refused" in node.status())


def test_where_no_report_is_taken_no_window_is_given_up() -> None:
    """
    What is wrong is this node's setting, or the upstream: all is told when that has changed.
    """
    upstream = Upstream(Clocks(), *[(400, b"node is no name")] * 6)
    node = reporter(upstream, told(5), told(6))

    async def run() -> list[float]:
        return [await node.round() for _ in range(4)]

    assert [GAP, GAP, FIRST_BACKOFF, GAP] == asyncio.run(run())
    assert "400: node is no name" == node.status()["state"]
    asyncio.run(all_told(node))
    assert ["w5:recording", "w6:recording"] == sorted(upstream.windows())
    assert [] == node.troubles
