"""
Calls to the HTTP application without a socket, over an attempt's folder made for it.
"""

import asyncio
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from stepscope.selection import Selection
from stepscope_sidecar.api import Sources, create_app
from stepscope_sidecar.store import Store
from tests.unit.sidecar.stored import put, window

FOLDER = "demo-a1/step-000005/trainer-0-7/torch"


DATA = gzip.compress(b'{"traceEvents": []}' * 100, mtime=0)


class Caller:
    """
    Calls the application without a socket, under the host name ``host``.
    """

    def __init__(self, app: Starlette, *, host: str) -> None:
        self._app = app
        self._base = f"http://{host}"

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """
        Call, and answer with what came.
        """

        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url=self._base) as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def get(self, path: str, **options: Any) -> httpx.Response:
        """
        Read.
        """
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        """
        Order.
        """
        return self.request("POST", path, **options)


class FakeController:
    """
    Stands in for the controller: remembers orders.
    """

    def __init__(self) -> None:
        self.orders: list[str] = []

    def status(self) -> Mapping[str, object]:
        """
        Some status.
        """
        return {"run": "demo", "attempt": "a1", "param_version": 5, "selection": "5", "processes": 2}

    def set_selection(self, text: str) -> Mapping[str, object]:
        """
        Keep the order, if it can be read.
        """
        Selection.parse(text)
        self.orders.append(text)
        return {"selection": text, "revision": 2}

    def stop(self) -> Mapping[str, object]:
        """
        Keep the order.
        """
        self.orders.append("stop")
        return {"windows_open": 1}


def attempt(tmp_path: Path) -> Path:
    """
    A STEPSCOPE_DIR with one attempt: two windows, an artifact, and things that are nobody's business.
    """
    root = tmp_path / "runs"
    folder = root / FOLDER
    folder.mkdir(parents=True)
    (folder / "recording.json.gz").write_bytes(DATA)
    (folder / "closed.json").write_text("{}")
    (tmp_path / "secret").write_text("secret")
    store = Store.open(root / "demo-a1" / "stepscope.db", run="demo", attempt="a1")
    try:
        rows = [
            window(5, artifact=f"{FOLDER}/recording.json.gz", bytes=len(DATA), complete=True),
            window(6, "denied", reason="rank_not_selected"),
            window(7, artifact="demo-a1/step-000007/link.json.gz"),
            window(8, artifact="demo-a1/step-000008/gone.json.gz"),
            window(9, artifact="demo-a1/step-000009/folder"),
            window(10, artifact="../secret"),
        ]
        put(store, *rows)
    finally:
        store.close()
    (root / "demo-a1" / "step-000007").mkdir()
    (root / "demo-a1" / "step-000007" / "link.json.gz").symlink_to(tmp_path / "secret")
    inside = root / "demo-a1" / "step-000009" / "folder"
    inside.mkdir(parents=True)
    (inside / "rank0.json").write_text("{}")
    (inside / "out").symlink_to(tmp_path)
    return root


def calling(directory: Path, live: FakeController, *, token: str = "", host: str = "127.0.0.1:8321") -> Caller:
    """
    A caller of an application over ``directory``.
    """
    sources = Sources(
        live=live,
        store=directory / "demo-a1" / "stepscope.db",
        directory=directory,
        metrics=lambda accept: (b"stepscope_up 1\n", "text/plain; version=0.0.4"),
    )
    return Caller(create_app(sources, token=token), host=host)
