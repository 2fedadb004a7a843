"""
A run's sidecar is asked, and no other that listens where it did: with a fixed address that is the next run's.
"""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from stepscope import ids
from stepscope_sidecar import addressee, glance, lifecycle, schema, standing, supervise
from stepscope_sidecar.commands import runs
from stepscope_sidecar.copies import Copies
from stepscope_sidecar.rows import ProcessRow
from stepscope_sidecar.serve import application
from stepscope_sidecar.store import Store
from tests.unit.sidecar.calling import Caller, FakeController, attempt, calling
from tests.unit.sidecar.stored import put, window

STATUS = {"run": "demo", "attempt": "a1", "windows_unfinished": 2, "param_version": 41, "processes": []}


@contextmanager
def sidecar(
    run: str = "demo-a1", *, status: dict[str, Any] | None = None, code: int = 200, old: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """
    Stands in for the sidecar of ``run``: where it listens, and the orders that it took. ``old``: it knows no mark.
    """
    orders: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            marked = self.headers.get(addressee.HEADER)
            answered = code if old or marked in {None, run} else 421
            body = json.dumps(status or STATUS if answered != 421 else {"error": f"this is the sidecar of {run}"})
            if self.command == "POST" and answered == 200:
                orders.append(self.path)
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(answered)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815 - the name is http.server's

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", orders
        finally:
            server.shutdown()
            thread.join()


def run_at(directory: Path, name: str, url: str) -> Path:
    """
    A run ``demo-{name}`` whose sidecar wrote down that it listens at ``url``.
    """
    folder = directory / f"demo-{name}"
    folder.mkdir()
    store = Store.open(folder / schema.FILE, run="demo", attempt=name)
    here, there = ids.process_start(os.getpid()), 5
    for rank, node, start in ((0, ids.node(), here), (1, "elsewhere", there)):
        row = ProcessRow(pid=os.getpid(), process_start=start, node=node, role="trainer", rank=rank, entered_step=4)
        put(store, row)
    store.close()
    lifecycle.announce(folder, {"http": url, "socket": str(directory / "s" / f"{name}.sock")})
    return folder


def test_an_order_for_a_run_that_has_ended_reaches_no_other(tmp_path: Path) -> None:
    """
    It names the run that answers there, and the one that can be meant.
    """
    with sidecar("demo-a1") as (url, orders):
        run_at(tmp_path, "a1", url)
        old = run_at(tmp_path, "a0", url)

        with pytest.raises(runs.CommandError, match=r"demo-a0 does not answer .*of demo-a1; name .* --run: demo-a1$"):
            runs.call(old, "/api/stop", {})
        assert [] == orders
        assert 2 == runs.call(tmp_path / "demo-a1", "/api/stop", {})["windows_unfinished"]
        assert ["demo-a1"] == runs.live(tmp_path)


def test_the_status_of_a_run_is_not_that_of_another(tmp_path: Path) -> None:
    """
    Not that of one whose attempt is the beginning of its own, and not of a sidecar that knows no mark.
    """
    with sidecar(status={**STATUS, "attempt": "a"}, old=True) as (url, _):
        folder = run_at(tmp_path, "a1", url)

        found = standing.status(folder, headers={})

        assert (False, 0) == (found["live"], found["param_version"])
        assert not supervise.unfinished(folder, headers={}).reached
        assert [] == runs.live(tmp_path)


@pytest.mark.parametrize("status", [[1], {"run": 5}, {"attempt": "a1"}])
def test_what_is_no_sidecar_is_none(tmp_path: Path, status: Any) -> None:
    """
    Whatever else has come to listen at the address.
    """
    with sidecar(status=status, old=True) as (url, _):
        folder = run_at(tmp_path, "a1", url)

        assert addressee.Answer(url=url) == addressee.ask(folder, shown={})


def test_a_demand_for_a_token_is_this_runs_while_its_sidecar_is_there(tmp_path: Path) -> None:
    """
    What is known is from its store then: a process that lives is not said to have lost its connection, and one of
    another node not to have ended.
    """
    with sidecar(code=401) as (url, _):
        folder = run_at(tmp_path, "a1", url)
        gone = standing.status(folder, headers={})
        with pytest.raises(
            runs.CommandError, match="a token, and nothing here shows that it is the sidecar of demo-a1"
        ):
            runs.call(folder, "/api/stop", {})
        lock = lifecycle.acquire(tmp_path / "s" / "a1.sock")
        assert lock is not None
        there = standing.status(folder, headers={})
        lock.release()

    told = glance.lines(there, name="demo-a1")

    assert (False, False) == (gone["live"], gone["demands_token"])
    assert (True, True) == (there["live"], there["demands_token"])
    assert f"process    trainer 0 (pid {os.getpid()}): step 4 (weights v3 in force, makes v4)" in told
    assert any("of another node" in line for line in told)
    assert not [line for line in told if "not connected" in line or "ended" in line]


def test_a_sidecar_refuses_what_is_for_another_run(tmp_path: Path) -> None:
    """
    An order as much as a question; who says nothing of a run is let in.
    """
    live = FakeController()
    caller = calling(attempt(tmp_path), live)

    other = caller.post("/api/stop", json={}, headers={addressee.HEADER: "demo-a0"})
    own = caller.post("/api/stop", json={}, headers={addressee.HEADER: "demo-a1"})

    assert (421, {"error": "this is the sidecar of demo-a1"}) == (other.status_code, other.json())
    assert 421 == caller.get("/api/status", headers={addressee.HEADER: "demo-a0"}).status_code
    assert (200, 200) == (own.status_code, caller.get("/api/status").status_code)
    assert ["stop"] == live.orders


def test_who_serves_a_run_from_its_store_is_not_its_sidecar(tmp_path: Path) -> None:
    """
    Though it may listen where that did.
    """
    caller = Caller(application(attempt(tmp_path) / "demo-a1" / schema.FILE, token=""), host="127.0.0.1")

    found = caller.get("/api/status", headers={addressee.HEADER: "demo-a1"})

    assert (421, {"error": "this is a server of the store of demo-a1"}) == (found.status_code, found.json())


def test_a_nodes_run_has_the_name_of_both(tmp_path: Path) -> None:
    """
    A node of the same attempt is another's sidecar.
    """
    folder = tmp_path / "demo-a1" / "nodes" / "n ü"

    assert {"a": "b", "stepscope-run": "demo-a1/nodes/n%20%C3%BC"} == addressee.headers(folder, {"a": "b"})


def test_copies_come_from_no_other_runs_sidecar(tmp_path: Path) -> None:
    """
    It is said that another answers.
    """
    transport = httpx.MockTransport(lambda request: httpx.Response(421, json={"error": str(request.headers)}))
    with Copies("http://127.0.0.1:9", headers={}, transport=transport) as copies:
        why = copies.get(window(3, artifact="demo-a1/x.json.gz"))

    assert "this run's sidecar does not answer: that of another run does, at its address" == why
