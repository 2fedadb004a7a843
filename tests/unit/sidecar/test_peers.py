"""
The route that other nodes report to: who may, what is answered, and that an order given here is in the answer.
"""

import asyncio
from collections.abc import Mapping

import httpx
import pytest
from starlette.applications import Starlette

from stepscope import settings
from stepscope_sidecar import report
from stepscope_sidecar.otlp import VIA
from stepscope_sidecar.peers import Peers
from stepscope_sidecar.plan import UPSTREAM
from stepscope_sidecar.report import Order, Report
from stepscope_sidecar.rows import SelectionRow
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT
from tests.unit.sidecar.reporting import told
from tests.unit.sidecar.stored import put

GOOD = report.encode(Report(node="n2", run="r", attempt="a", windows=(told(5),)))
JSON = {"content-type": "application/json"}


async def posted(peers: Peers, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
    """
    What a report is answered.
    """
    transport = httpx.ASGITransport(Starlette(routes=[peers.route()]), client=("127.0.0.1", 9))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4318") as client:
        return await client.post(report.PATH, content=body, headers=dict(headers))


def peers(store: Store, token: str = "") -> Peers:
    """
    Of a sidecar without upstream.
    """
    own = settings.read({"STEPSCOPE_RUN": "demo", "STEPSCOPE_ATTEMPT": ATTEMPT})
    return Peers(
        own, store, upstream=None, token=token, instance="i1", url=lambda: "http://127.0.0.1:1", obey=lambda _: True
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (JSON, 200),
        ({"content-type": "application/json; charset=utf-8"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({**JSON, "origin": "http://evil.example"}, 403),
        ({**JSON, "origin": "http://127.0.0.1:4318"}, 403),
        ({**JSON, "origin": "null"}, 403),
        ({**JSON, VIA: "i1"}, 409),
    ],
)
def test_only_sidecars_report(store: Store, headers: Mapping[str, str], status: int) -> None:
    """
    A page that a browser on this machine shows cannot, under whatever name it reaches us.
    """

    async def run() -> tuple[int, int]:
        found = peers(store)
        answer = await posted(found, GOOD, headers)
        return answer.status_code, len(found.nodes.present)

    assert (status, int(status == 200)) == asyncio.run(run())


def test_a_token_is_needed_where_there_is_one(store: Store) -> None:
    """
    On loopback too.
    """

    async def run() -> list[int]:
        found = peers(store, token="secret")
        shown = {**JSON, "authorization": "Bearer secret"}
        wrong = {**JSON, "authorization": "Bearer other"}
        return [(await posted(found, GOOD, headers)).status_code for headers in (JSON, wrong, shown)]

    assert [401, 401, 200] == asyncio.run(run())


def test_what_is_no_report_is_answered_with_what_is_wrong(store: Store) -> None:
    """
    And one that is too long is not read to its end.
    """

    async def run() -> list[tuple[int, str]]:
        found = peers(store)
        answers = [await posted(found, body, JSON) for body in (b"{", b" " * (report.MAX_BYTES + 1))]
        return [(answer.status_code, answer.text.partition(":")[0].strip()) for answer in answers]

    assert [(400, "not JSON"), (400, f"more than {report.MAX_BYTES} bytes")] == asyncio.run(run())


def test_an_order_is_in_the_answer_until_it_is_obeyed(store: Store) -> None:
    """
    And the status says who has obeyed; of nothing where no node reports.
    """

    async def run() -> list[object]:
        found = peers(store)
        seen: list[object] = [found.status().get("ordered")]
        seen.append(found.order("4", False))
        await posted(found, GOOD, JSON)
        seen.append(found.order("5", False))
        order = report.decode_reply((await posted(found, GOOD, JSON)).content).order
        assert order is not None
        seen += [order.steps, found.status()["ordered"]]
        obeyed = report.encode(Report(node="n2", run="r", attempt="a", obeys=order.number))
        seen.append(report.decode_reply((await posted(found, obeyed, JSON)).content).order)
        return [*seen, found.status()["ordered"]]

    name = "n2 of r-a"
    waits = {"order": "steps 5", "reached": [], "waiting": [name]}
    done = {"order": "steps 5", "reached": [name], "waiting": []}
    assert [None, [], [name], "5", waits, None, done] == asyncio.run(run())


def test_a_restarted_node_knows_what_it_has_obeyed(store: Store) -> None:
    """
    From the revisions of the selection in its store.
    """
    sources = ("environment", UPSTREAM.format(8), UPSTREAM.format(7), "api")
    put(store, *(SelectionRow(revision=at, text="5", unix_ns=1, source=source) for at, source in enumerate(sources)))

    async def run() -> int:
        return peers(store)._obeyed()

    assert 8 == asyncio.run(run())
    assert "stop" == str(Order(number=9, stopped=True))
