"""
The token of a sidecar: everything of ours that calls one shows it.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stepscope.errors import ConfigurationError
from stepscope.settings import read
from stepscope_sidecar import glance, lifecycle, render, standing, supervise
from stepscope_sidecar.commands import runs
from stepscope_sidecar.store import Store
from stepscope_sidecar.token import headers

RUN = {"run": "demo", "attempt": "a1"}


class Guarded(BaseHTTPRequestHandler):
    """
    Stands in for a sidecar that demands its token.
    """

    def do_GET(self) -> None:
        """
        Some status, to whoever shows the token.
        """
        shown = self.headers.get("authorization") == "Bearer secret"
        body = json.dumps({**RUN, "windows_unfinished": 2, "spans_pending": 3} if shown else {}).encode()
        self.send_response(200 if shown else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name is http.server's

    def log_message(self, *_: object) -> None:
        """
        Nothing.
        """


@pytest.fixture
def url() -> Iterator[str]:
    """
    Where it listens.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_status_waiting_and_orders_show_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """
    Without, a run that goes on would be told as ended, and `run` would not know that windows are left.
    """
    folder = tmp_path / "demo-a1"
    folder.mkdir()
    (folder / "sidecar.json").write_text(json.dumps({"http": url}))
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("STEPSCOPE_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("STEPSCOPE_DIR", str(tmp_path))
    env = {
        "STEPSCOPE_TOKEN_FILE": str(tmp_path / "token"),
        "STEPSCOPE_DIR": str(tmp_path),
        "STEPSCOPE_RUN": "demo",
        "STEPSCOPE_ATTEMPT": "a1",
    }

    left = supervise.Sidecar(env, warn=print).linger(cut_short=lambda: True)

    assert supervise.Left(windows=2, spans=3) == left
    assert not supervise.unfinished(folder, headers={}).reached
    assert standing.status(folder, headers=headers(read()))["live"]
    assert ["demo-a1"] == runs.live(tmp_path)
    assert 2 == runs.call(folder, "/api/stop", {})["windows_unfinished"]


def test_without_the_token_status_says_that_it_is_demanded(tmp_path: Path, url: str) -> None:
    """
    What the store has is shown, and that the sidecar is there.
    """
    folder = tmp_path / "demo-a1"
    folder.mkdir()
    Store.open(folder / render.STORE).close()
    (folder / "sidecar.json").write_text(json.dumps({"http": url, "socket": str(tmp_path / "s" / "a.sock")}))
    lock = lifecycle.acquire(tmp_path / "s" / "a.sock")
    assert lock is not None

    found = standing.status(folder, headers={})
    lock.release()

    assert found["live"]
    assert found["demands_token"]
    assert "demo-a1: running; its sidecar demands its token: set STEPSCOPE_TOKEN_FILE" in "\n".join(
        glance.lines(found, name="demo-a1")
    )


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), (b" \n", "is empty"), (b"\xff", "not text")])
def test_a_token_that_cannot_be_read_is_a_wrong_setting(tmp_path: Path, content: bytes | None, why: str) -> None:
    """
    With the setting, the file and the reason.
    """
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigurationError, match=f"STEPSCOPE_TOKEN_FILE={path}.*{why}"):
        headers(read({"STEPSCOPE_TOKEN_FILE": str(path)}))
