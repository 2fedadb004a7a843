"""
The way upstream: what is answered to reports is bounded, in bytes and in time; by which addresses nodes meet.
"""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from stepscope_sidecar.uplink import MAX_ANSWER, HttpTransport, reachable
from stepscope_sidecar.upstream import Upstream


class Endless(httpx.AsyncByteStream):
    """
    An answer that never ends: it floods, or drips.
    """

    def __init__(self, *, drips: bool) -> None:
        """
        With ``drips`` a byte comes each time that the loop comes round.
        """
        self.drips = drips

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """
        Its pieces.
        """
        loop = asyncio.get_running_loop()
        while True:
            yield b" " if self.drips else b"x" * 65536
            if self.drips:
                turn = loop.create_future()
                loop.call_soon(turn.set_result, None)
                await turn


@pytest.mark.parametrize(
    ("drips", "timeout", "why"),
    [(False, 30.0, f"an answer of more than {MAX_ANSWER} bytes"), (True, 0.05, "no whole answer within 0.05 s")],
)
def test_an_answer_without_end_is_none(drips: bool, timeout: float, why: str) -> None:
    """
    The report is tried again as if the upstream were away.
    """

    async def run() -> tuple[int, bytes]:
        transport = HttpTransport(Upstream(url="http://127.0.0.1:9/v1/traces", timeout=timeout), via="i")
        await transport._client.aclose()
        answers = httpx.MockTransport(lambda request: httpx.Response(200, stream=Endless(drips=drips)))
        transport._client = httpx.AsyncClient(transport=answers)
        try:
            async with asyncio.timeout(30):
                return await transport.send(b"{}")
        finally:
            await transport.close()

    assert (0, why.encode()) == asyncio.run(run())


@pytest.mark.parametrize(
    ("bound", "upstream", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:81"),
        ("127.0.0.1", "http://192.0.2.1:4318/v1/traces", ""),
        ("0.0.0.0", "http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:81"),
        ("127.0.0.1", "http://nowhere.invalid:4318/v1/traces", ""),
    ],
)
def test_the_address_that_a_node_tells_is_one_that_can_be_used(bound: str, upstream: str, expected: str) -> None:
    """
    Pages on loopback are no use to another machine; those open to all have the address that is turned to it.
    """
    assert expected == reachable("http://127.0.0.1:81", bound=bound, upstream=Upstream(url=upstream))


@pytest.mark.parametrize(
    ("address", "url", "expected"),
    [
        (("127.0.0.1", 4318), "http://localhost:4318/v1/traces", True),
        (("0.0.0.0", 4318), "http://127.0.0.1:4318/v1/traces", True),
        (("127.0.0.1", 4319), "http://127.0.0.1:4318/v1/traces", False),
        (("0.0.0.0", 4318), "http://192.0.2.1:4318/v1/traces", False),
        (("127.0.0.1", 0), "http://127.0.0.1:4318/v1/traces", False),
        (("127.0.0.1", 80), "http://127.0.0.1/v1/traces", True),
    ],
)
def test_a_sidecar_knows_when_it_is_its_own_upstream(address: tuple[str, int], url: str, expected: bool) -> None:
    """
    All nodes of a run may share one environment: the one that is meant forwards nothing.
    """
    assert expected is Upstream(url=url).leads_to(address)
