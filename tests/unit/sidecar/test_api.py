"""
The HTTP side of the sidecar: answers, orders, and what it refuses.
"""

import asyncio
import base64
import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from stepscope.selection import Selection
from stepscope_sidecar.api import MAX_BODY, Sources, create_app, find_artifact
from stepscope_sidecar.gate import is_loopback
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.store import Store
from tests.unit.sidecar.test_steptable import window

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
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url=self._base) as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


class FakeController:
    """
    Stands in for the controller: remembers orders.
    """

    def __init__(self) -> None:
        self.orders: list[str] = []

    def status(self) -> Mapping[str, object]:
        return {"run": "demo", "attempt": "a1", "param_version": 5, "selection": "5", "processes": 2}

    def set_selection(self, text: str) -> Mapping[str, object]:
        Selection.parse(text)
        self.orders.append(text)
        return {"selection": text, "revision": 2}

    def stop(self) -> Mapping[str, object]:
        self.orders.append("stop")
        return {"windows_open": 1}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
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
        for row in rows:
            store.put_window(row).result(10)
    finally:
        store.close()
    (root / "demo-a1" / "step-000007").mkdir()
    (root / "demo-a1" / "step-000007" / "link.json.gz").symlink_to(tmp_path / "secret")
    inside = root / "demo-a1" / "step-000009" / "folder"
    inside.mkdir(parents=True)
    (inside / "rank0.json").write_text("{}")
    (inside / "out").symlink_to(tmp_path)
    return root


@pytest.fixture
def live() -> FakeController:
    """
    The controller that gets the orders.
    """
    return FakeController()


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


@pytest.fixture
def caller(directory: Path, live: FakeController) -> Caller:
    """
    A caller on this machine.
    """
    return calling(directory, live)


def test_the_page_and_the_probes_answer(caller: Caller) -> None:
    """
    A browser, an orchestrator and Prometheus each get what they came for.
    """
    page = caller.get("/")

    assert (200, "text/html; charset=utf-8") == (page.status_code, page.headers["content-type"])
    assert "step 5 (weights v4 in force, makes v5)" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "nosniff" == page.headers["x-content-type-options"]
    assert "ok\n" == caller.get("/healthz").text
    metrics = caller.get("/metrics")
    assert ("stepscope_up 1\n", "text/plain; version=0.0.4") == (metrics.text, metrics.headers["content-type"])


def test_json_of_status_windows_spans_and_steps(caller: Caller, directory: Path) -> None:
    """
    Windows are what the command line prints; a step can be asked for.
    """
    windows = caller.get("/api/windows").json()

    assert [5, 6, 7, 8, 9, 10] == [row["step"] for row in windows]
    assert str(directory / FOLDER / "recording.json.gz") == windows[0]["artifact"]
    assert [6] == [row["step"] for row in caller.get("/api/windows?step=6").json()]
    assert "demo" == caller.get("/api/status").json()["run"]
    assert [] == caller.get("/api/spans?step=5").json()
    steps = caller.get("/api/steps").json()
    assert [(5, "1 ready", "unknown"), (6, "1 denied", "")] == [
        (row["step"], row["recorded"], row["overhead"]) for row in steps[:2]
    ]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/windows?step=x", 400), ("/api/spans?step=-1", 400), ("/api/spans?limit=1e9", 400), ("/nothing", 404)],
)
def test_a_wrong_request_is_answered_with_a_message(caller: Caller, path: str, status: int) -> None:
    """
    Errors are JSON with a message, never a stack trace.
    """
    answer = caller.get(path)

    assert status == answer.status_code
    assert answer.json()["error"]


def test_without_a_store_the_answer_says_so(tmp_path: Path, live: FakeController) -> None:
    """
    A store that cannot be read is the server's trouble, with its reason.
    """
    answer = calling(tmp_path, live).get("/api/windows")

    assert 503 == answer.status_code
    assert "no store" in answer.json()["error"]


def test_orders_reach_the_controller(caller: Caller, live: FakeController) -> None:
    """
    A new selection and a stop are passed on, and what came of them is answered.
    """
    changed = caller.post("/api/profile", json={"steps": "5,8-9"})
    stopped = caller.post("/api/stop", json={})

    assert ["5,8-9", "stop"] == live.orders
    assert {"selection": "5,8-9", "revision": 2} == changed.json()
    assert {"windows_open": 1} == stopped.json()


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"steps": "5-"}', "application/json", 400),
        (b'{"steps": 5}', "application/json", 400),
        (b"{}", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"steps": "5"}', "text/plain", 415),
        (b'{"steps": "5"}', "application/x-www-form-urlencoded", 415),
        (b" " * (MAX_BODY + 1), "application/json", 413),
    ],
)
def test_a_wrong_order_changes_nothing(
    caller: Caller, live: FakeController, body: bytes, kind: str, status: int
) -> None:
    """
    Bad grammar, a wrong type, too much, or a form that a foreign page could send: refused with a message.
    """
    answer = caller.post("/api/profile", content=body, headers={"content-type": kind})

    assert status == answer.status_code
    assert answer.json()["error"]
    assert [] == live.orders


def test_an_order_is_not_given_by_reading(caller: Caller, live: FakeController) -> None:
    """
    GET changes nothing.
    """
    assert [405, 405] == [caller.get(path).status_code for path in ("/api/profile", "/api/stop")]
    assert [] == live.orders


def test_an_artifact_is_sent_as_it_is(caller: Caller) -> None:
    """
    Its bytes are those that were hashed, under a name that says what it is.
    """
    answer = caller.get(f"/artifacts/{FOLDER}/recording.json.gz")

    assert hashlib.sha256(DATA).hexdigest() == hashlib.sha256(answer.content).hexdigest()
    assert "application/gzip" == answer.headers["content-type"]
    assert "content-encoding" not in answer.headers
    assert 'attachment; filename="step-5-trainer-0-recording.json.gz"' == answer.headers["content-disposition"]


def test_a_part_of_an_artifact_can_be_asked_for(caller: Caller) -> None:
    """
    A download that broke off goes on where it was.
    """
    path = f"/artifacts/{FOLDER}/recording.json.gz"
    part = caller.get(path, headers={"range": "bytes=10-19"})
    beyond = caller.get(path, headers={"range": f"bytes={len(DATA)}-"})

    assert (206, DATA[10:20], f"bytes 10-19/{len(DATA)}") == (
        part.status_code,
        part.content,
        part.headers["content-range"],
    )
    assert 416 == beyond.status_code


def test_a_file_in_an_artifact_that_is_a_folder(caller: Caller) -> None:
    """
    Some profilers leave a folder; its files can be had one by one, the folder itself and links in it cannot.
    """
    folder = "/artifacts/demo-a1/step-000009/folder"

    assert (200, "application/json") == (
        (answer := caller.get(f"{folder}/rank0.json")).status_code,
        answer.headers["content-type"],
    )
    assert [404, 404, 404] == [caller.get(f"{folder}{rest}").status_code for rest in ("", "/out", "/out/secret")]


@pytest.mark.parametrize(
    "path",
    [
        "demo-a1/stepscope.db",
        f"{FOLDER}/closed.json",
        f"{FOLDER}/",
        f"{FOLDER}/recording.json.gz/",
        f"{FOLDER}//recording.json.gz",
        f"{FOLDER}/%2e/recording.json.gz",
        f"demo-a1/%2e%2e/{FOLDER}/recording.json.gz",
        f"{FOLDER}/%2e%2e/torch/recording.json.gz",
        f"{FOLDER}/..%2ftorch/recording.json.gz",
        f"{FOLDER}/recording.json.gz%00",
        "demo-a1/step-000007/link.json.gz",
        "demo-a1/step-000008/gone.json.gz",
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "",
        "x" * 5000,
    ],
)
def test_no_other_file_leaves(caller: Caller, path: str) -> None:
    """
    Not the store, not the close record, nothing by a detour, by a link or outside the directory.
    """
    answer = caller.get(f"/artifacts/{path}")

    assert answer.status_code in {404, 307}
    assert b"secret" not in answer.content
    assert DATA != answer.content or answer.url.path == f"/artifacts/{FOLDER}/recording.json.gz"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "", "secret", "demo-a1", "step-000009", "folder", "out", "\0", "~"]) | st.text(),
        max_size=7,
    )
)
def test_no_path_leads_outside(directory: Path, parts: list[str]) -> None:
    """
    Whatever is asked for, as it is after decoding, there is no answer but "no such artifact".
    """
    with (
        open_reader(directory / "demo-a1" / "stepscope.db") as reader,
        pytest.raises(HTTPException, match="no such artifact"),
    ):
        find_artifact(reader, "/".join(parts), directory=directory)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1:8321", True),
        ("127.0.0.1", True),
        ("127.9.9.9:1", True),
        ("localhost:8321", True),
        ("LOCALHOST", True),
        ("[::1]:8321", True),
        ("run.localhost:1", True),
        ("", False),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8321", False),
        ("10.0.0.1:8321", False),
        ("0.0.0.0:8321", False),
        ("[::]:8321", False),
        ("127.0.0.1@evil.example", False),
        ("[::1", False),
        ("2130706433", False),
    ],
)
def test_which_hosts_are_this_machine(host: str, loopback: bool) -> None:
    """
    Loopback addresses and names that cannot resolve elsewhere, nothing that merely looks like them.
    """
    assert loopback == is_loopback(host)


def test_another_host_name_is_refused(caller: Caller, live: FakeController) -> None:
    """
    A foreign name that resolves to this machine gets nothing, on any route.
    """
    for method, path in (("GET", "/"), ("GET", "/api/windows"), ("GET", "/healthz"), ("POST", "/api/stop")):
        answer = caller.request(method, path, json={}, headers={"host": "evil.example"})
        assert 403 == answer.status_code
        assert "loopback" in answer.json()["error"]
    assert [] == live.orders


def test_another_sites_page_is_refused(caller: Caller, live: FakeController) -> None:
    """
    A browser tells where a request comes from; only our own page may call.
    """
    own = caller.get("/api/status", headers={"origin": "http://127.0.0.1:8321"})
    foreign = [
        caller.post("/api/stop", json={}, headers={"origin": origin}).status_code
        for origin in ("https://evil.example", "null", "http://127.0.0.1:9999")
    ]

    assert 200 == own.status_code
    assert [403, 403, 403] == foreign
    assert [] == live.orders


def test_with_a_token_everybody_has_to_show_it(directory: Path, live: FakeController) -> None:
    """
    As a bearer token, or as a browser's password, under any host name; only the probe goes without.
    """
    basic = base64.b64encode(b"me:s3cret:with:colons").decode()
    caller = calling(directory, live, token="s3cret:with:colons", host="10.0.0.5:80")
    without = caller.get("/api/status")
    wrong = [
        caller.get("/", headers=[(b"authorization", text)]).status_code
        for text in (
            b"Bearer nope",
            b"Bearer",
            b"Basic !!",
            b"Basic bm9wZQ==",
            b"Digest s3cret:with:colons",
            b"Bearer \xe9",
        )
    ]
    right = [
        caller.get("/api/status", headers={"authorization": text}).status_code
        for text in ("Bearer s3cret:with:colons", f"Basic {basic}")
    ]
    probe = caller.get("/healthz")

    assert (401, True) == (without.status_code, without.headers["www-authenticate"].startswith("Basic"))
    assert {401} == set(wrong)
    assert [200, 200] == right
    assert 200 == probe.status_code
