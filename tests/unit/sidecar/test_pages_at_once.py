"""
Many who look at a run cost it no more than some do.
"""

import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from stepscope_sidecar import views
from stepscope_sidecar.serve import application
from tests.unit.sidecar.ledgers import kept, step_spans
from tests.unit.sidecar.stored import WAIT, receive

CLIENTS = 12


def test_pages_are_made_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The others wait, a screen's worth of them; who comes after is told to try again.
    """
    monkeypatch.setattr(views, "WAITING", 5)
    go, full, lock = threading.Event(), threading.Event(), threading.Lock()
    now, most = [0], [0]

    def run(*_: object) -> str:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] == views.AT_ONCE:
                full.set()
        assert go.wait(WAIT)
        with lock:
            now[0] -= 1
        return "a page"

    monkeypatch.setattr(views.Views, "_run", run)
    path = tmp_path / "run-a1" / "stepscope.db"
    path.parent.mkdir()
    with kept(path) as store:
        receive(store, step_spans(1, seconds=1.0))

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(application(path, token=""))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            asked = [asyncio.create_task(client.get("/")) for _ in range(CLIENTS)]
            assert await asyncio.to_thread(full.wait, WAIT)
            refused = await first(asked, CLIENTS - views.AT_ONCE - 5)
            go.set()
            assert {503} == {task.result().status_code for task in refused}
            return list(await asyncio.gather(*asked))

    answers = asyncio.run(ask())

    assert views.AT_ONCE == most[0]
    assert [200] * (views.AT_ONCE + 5) + [503] * (CLIENTS - views.AT_ONCE - 5) == sorted(
        answer.status_code for answer in answers
    )
    assert {"5"} == {answer.headers["retry-after"] for answer in answers if answer.status_code == 503}


async def first(tasks: "list[asyncio.Task[httpx.Response]]", count: int) -> "set[asyncio.Task[httpx.Response]]":
    """
    The first ``count`` of ``tasks`` that have ended.
    """
    done: set[asyncio.Task[httpx.Response]] = set()
    left = set(tasks)
    while len(done) < count:
        ended, left = await asyncio.wait(left, timeout=WAIT, return_when=asyncio.FIRST_COMPLETED)
        assert ended
        done |= ended
    return done
