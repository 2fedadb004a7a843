"""
The upstream's side of reports under a clock that a test sets.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from stepscope_sidecar.clock import Estimate
from stepscope_sidecar.nodes import Nodes, Taken
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.report import Report
from stepscope_sidecar.reporter import Teller
from stepscope_sidecar.roster import node_objects
from stepscope_sidecar.rows import MissingRow, WindowRow
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT
from tests.unit.sidecar.reporting import Clocks

OWN = Teller(node="n1", run="demo", attempt=ATTEMPT)


class Kept:
    """
    The nodes that a sidecar keeps, under a clock that the test sets.
    """

    def __init__(self, store: Store) -> None:
        """
        Begin with what is in ``store``.
        """
        self.store, self.clocks = store, Clocks()
        self.nodes = self.restarted()

    def restarted(self) -> Nodes:
        """
        The sidecar's next life.
        """
        self.nodes = Nodes(self.store, OWN, unix_ns=self.clocks.unix_ns, monotonic=self.clocks.monotonic)
        return self.nodes

    def take(
        self, *windows: WindowRow, ending: bool = False, missing: Iterable[MissingRow] = (), **changes: str | int
    ) -> Taken:
        """
        A report of node n2.
        """
        clock = Estimate(offset_ns=2_000_000, error_ns=500_000)
        plain = Report(node="n2", run="r", attempt="a", http="http://127.0.0.1:9", clock=clock)
        plain = replace(plain, windows=windows, ending=ending, missing=tuple(missing))
        told = replace(plain, **changes)  # type: ignore[arg-type]  # names alone
        return asyncio.run(self.nodes.take(told, peer="127.0.0.1"))

    def later(self, seconds: float) -> None:
        """
        Time passes, and is looked at.
        """
        self.clocks.now += int(seconds * 1e9)
        self.nodes.tick()
        self.store.submit(lambda connection: None).result(10)

    def states(self) -> list[str]:
        """
        The windows of other nodes as a reader sees them.
        """
        with open_reader(self.store.path) as reader:
            return [f"{row.node} {row.window} {row.state} {row.reason}".strip() for row in reader.elsewhere()]

    def stand(self) -> list[object]:
        """
        How the nodes stand.
        """
        with open_reader(self.store.path) as reader:
            return [found["state"] for found in node_objects(reader)]
