"""
What tests of reports share: a node, its windows, an upstream that answers as told, and a clock.
"""

from collections.abc import Callable, Sequence

from stepscope_sidecar import report
from stepscope_sidecar.report import Order, Reply, Report
from stepscope_sidecar.reporter import Reporter, Teller
from stepscope_sidecar.rows import MissingRow, WindowRow
from tests.unit.sidecar.stored import window

TELLER = Teller(node="n2", run="r", attempt="a")

SHA = "0" * 64


def told(step: int, state: str = "recording", **changes: object) -> WindowRow:
    """
    A window of :data:`TELLER`.
    """
    return window(step, state, **{"node": "n2", "window": f"w{step}", **changes})


class Clocks:
    """
    A node's two clocks, which a test sets; ``unix_ns`` of the upstream is ahead by ``ahead``.
    """

    def __init__(self, *, ahead: int = 0) -> None:
        """
        Begin at 1,000 s.
        """
        self.now = 1_000_000_000_000
        self.ahead = ahead

    def unix_ns(self) -> int:
        """
        The node's time.
        """
        return self.now

    def monotonic(self) -> float:
        """
        The same in seconds.
        """
        return self.now / 1e9


class Upstream:
    """
    A transport that keeps reports and answers with ``answers``, then as a sidecar does.
    """

    def __init__(self, clocks: Clocks, *answers: tuple[int, bytes]) -> None:
        """
        Each way takes ``way`` nanoseconds, and the upstream ``held``.
        """
        self.clocks = clocks
        self.answers = list(answers)
        self.reports: list[Report] = []
        self.keeper = "k1"
        self.order: Order | None = None
        self.known, self.refused = True, ""
        self.way, self.back, self.held = 1_000_000, 1_000_000, 5_000_000
        self.closed = False

    async def send(self, body: bytes) -> tuple[int, bytes]:
        """
        Take ``body``.
        """
        if self.answers and self.answers[0][0] != 200:
            return self.answers.pop(0)
        self.reports.append(report.decode(body))
        if self.answers:
            return self.answers.pop(0)
        self.clocks.now += self.way + self.held
        answered = self.clocks.now + self.clocks.ahead
        self.clocks.now += self.back
        reply = Reply(
            keeper=self.keeper,
            unix_ns=answered,
            held_ns=self.held,
            order=self.order,
            known=self.known,
            refused=self.refused,
        )
        return 200, report.encode_reply(reply)

    async def close(self) -> None:
        """
        Note it.
        """
        self.closed = True

    def windows(self) -> list[str]:
        """
        What was reported, in order.
        """
        return [f"{row.window}:{row.state}" for item in self.reports for row in item.windows]


def reporter(
    upstream: Upstream,
    *stored: WindowRow,
    obey: Callable[[Order], bool] = lambda _: True,
    missing: Sequence[MissingRow] = (),
) -> Reporter:
    """
    A node's reporter whose store holds ``stored``, and what is ``missing``; ``obey`` carries out orders.
    """
    return Reporter(
        TELLER,
        transport=upstream,
        everything=lambda: list(stored),
        missing=lambda: list(missing),
        http=lambda: "http://127.0.0.1:9",
        unix_ns=upstream.clocks.unix_ns,
        monotonic_ns=upstream.clocks.unix_ns,
        obey=obey,
    )
