"""
Artifacts of other nodes: only the right bytes, only of what was reported, never too many at a time.
"""

import asyncio
import hashlib
import re
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from stepscope_sidecar import rows, sums
from stepscope_sidecar.api import Sources, create_app
from stepscope_sidecar.objects import STORED, Objects
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.remote import AT_ONCE, Remote, find
from stepscope_sidecar.rows import NodeRow, WindowRow
from stepscope_sidecar.serve import application
from stepscope_sidecar.store import Store
from tests.unit.sidecar.artefacts import ARTIFACT, DATA, Silent, local, ready
from tests.unit.sidecar.calling import Caller, FakeController

NODE = NodeRow(node="n2", run="r", attempt="a", http="http://127.0.0.1:9")

Send = Callable[[Request], Awaitable[Response]]


def reported(store: Store, row: WindowRow) -> None:
    """
    n2 has reported ``row``.
    """

    def keep(connection: sqlite3.Connection) -> None:
        for found, table in ((row, "node_windows"), (NODE, "nodes")):
            connection.execute(rows.upsert(found, table), rows.values(found))

    store.submit(keep).result(10)


def upstream(
    store: Store, *, sends: Send, row: WindowRow | None = None, token: str = "", objects: Objects | None = None
) -> Caller:
    """
    A caller of a sidecar that n2 has reported ``row`` to; n2 answers with ``sends``.
    """
    reported(store, row or ready())
    node = Starlette(routes=[Route("/artifacts/{path:path}", sends)])
    sources = Sources(
        live=FakeController(),
        store=store.path,
        directory=store.path.parent,
        metrics=lambda accept: (b"", ""),
        remote=Remote(token=token, objects=objects, transport=httpx.ASGITransport(node)),
    )
    return Caller(create_app(sources), host="127.0.0.1:8321")


async def sent(request: Request) -> Response:
    """
    The node's artifact.
    """
    return Response(DATA, media_type="application/gzip")


def test_an_artifact_of_another_node_comes_through(store: Store) -> None:
    """
    Under the node's name, and under its own where no other is called so; the node is shown the token.
    """
    shown: list[str] = []

    async def sends(request: Request) -> Response:
        shown.append(f"{request.url.path} {request.headers.get('authorization')}")
        return await sent(request)

    caller = upstream(store, sends=sends, token="secret")
    first, second = caller.get(f"/nodes/n2/artifacts/{ARTIFACT}"), caller.get(f"/artifacts/{ARTIFACT}")

    assert (DATA, DATA) == (first.content, second.content)
    assert "application/octet-stream" == first.headers["content-type"]
    assert "step-5-trainer-0-recording.json.gz" in first.headers["content-disposition"]
    assert [f"/artifacts/{ARTIFACT} Bearer secret"] * 2 == shown
    head = caller.request("HEAD", f"/nodes/n2/artifacts/{ARTIFACT}")
    assert (200, str(len(DATA))) == (head.status_code, head.headers["content-length"])
    assert 2 == len(shown)


@pytest.mark.parametrize(
    "address",
    [
        "nodes/n3/artifacts/" + ARTIFACT,
        "nodes/n2/artifacts/r-a/step-000005",
        "nodes/n2/artifacts/" + ARTIFACT + "/../../../../../secret",
        "nodes/n2/artifacts/" + ARTIFACT.replace("/", "//", 1),
        "nodes/n2/artifacts/" + ARTIFACT + "%3Fx=1",
        "nodes/n2/artifacts/" + ARTIFACT + "/%252e%252e/x",
        "nodes/n2/artifacts/api/stop",
        "artifacts/stepscope.db",
    ],
)
def test_nothing_else_of_a_node_is_asked_for(store: Store, address: str) -> None:
    """
    Only artifacts of windows that it reported, whatever the address looks like.
    """
    asked: list[str] = []

    async def sends(request: Request) -> Response:
        asked.append(request.url.path)
        return await sent(request)

    assert 404 == upstream(store, sends=sends).get(f"/{address}").status_code
    assert [] == asked


def test_what_a_node_reported_serves_no_file_of_ours(store: Store) -> None:
    """
    A node that calls a file of this machine its artifact gets it asked for at the node.
    """
    (store.path.parent / "secret.json").write_text("ours")

    async def sends(request: Request) -> Response:
        return PlainTextResponse("theirs")

    caller = upstream(store, sends=sends, row=ready(artifact="secret.json", bytes=6))

    assert 502 == caller.get("/artifacts/secret.json").status_code


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (ready(sha256="0" * 64), "SHA-256"),
        (ready(bytes=len(DATA) - 1), "longer"),
        (ready(bytes=len(DATA) + 1), "SHA-256"),
    ],
)
def test_other_bytes_than_reported_are_never_whole(store: Store, row: WindowRow, why: str) -> None:
    """
    The answer breaks off before its last piece, and a short one is an error at once.
    """
    caller = upstream(store, sends=sent, row=row)

    with pytest.raises(OSError, match=why):
        caller.get(f"/nodes/n2/artifacts/{ARTIFACT}")


@pytest.mark.parametrize("status", [302, 401, 404, 500])
def test_a_node_that_does_not_send_is_named(store: Store, status: int) -> None:
    """
    A redirect is not followed.
    """

    async def sends(request: Request) -> Response:
        return Response(status_code=status, headers={"location": "http://127.0.0.1:1/"})

    answer = upstream(store, sends=sends).get(f"/nodes/n2/artifacts/{ARTIFACT}")

    assert 502 == answer.status_code
    assert f"node n2 answers {status}" in answer.json()["error"]


def test_a_node_that_cannot_be_asked_says_so(store: Store) -> None:
    """
    Its pages are on loopback, or it does not listen any more.
    """
    caller = upstream(store, sends=sent)
    store.submit(lambda connection: connection.execute("UPDATE nodes SET http = ''")).result(10)

    answer = caller.get(f"/nodes/n2/artifacts/{ARTIFACT}")

    assert 502 == answer.status_code
    assert "n2 cannot be asked" in answer.json()["error"]


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", ""])
def test_nothing_that_a_node_sends_is_a_page_of_ours(store: Store, kind: str) -> None:
    """
    Whatever the node calls it: a file is saved, under a name and a type of ours, and its headers go no further.
    """
    page = b"<script>alert(1)</script>"
    artifact = "r-a/step-000005/trainer-0-7/x-mine/page.html"
    row = ready(artifact=artifact, bytes=len(page), sha256=hashlib.sha256(page).hexdigest(), role='"><b>\\')

    async def sends(request: Request) -> Response:
        headers = {"content-security-policy": "default-src *", "set-cookie": "a=b", "content-disposition": "inline"}
        return Response(page, media_type=kind or None, headers=headers)

    answer = upstream(store, sends=sends, row=row).get(f"/nodes/n2/artifacts/{artifact}")

    # What says of itself that it is a page is taken for a folder's, which nobody needs.
    assert (502 if kind == "text/html" else 200) == answer.status_code
    assert "sandbox; default-src 'none'" == answer.headers["content-security-policy"]
    assert "nosniff" == answer.headers["x-content-type-options"]
    assert "set-cookie" not in answer.headers
    if answer.status_code == 200:
        assert "application/octet-stream" == answer.headers["content-type"]
        assert (
            "attachment; filename*=utf-8''step-5-%22%3E%3Cb%3E%5C-0-page.html" == answer.headers["content-disposition"]
        )


FOLDER = "r-a/step-000005/trainer-0-7/vllm/trace"


def folder(files: dict[str, bytes], **changes: object) -> tuple[WindowRow, bytes]:
    """
    A recording that is a folder of these files, and their list.
    """
    listed = b"".join(
        sums.line(hashlib.sha256(data).hexdigest(), name.encode()) for name, data in sorted(files.items())
    )
    size = sum(map(len, files.values()))
    values: dict[str, object] = {"artifact": FOLDER, "bytes": size, "sha256": hashlib.sha256(listed).hexdigest()}
    return ready(**{**values, **changes}), listed


def test_a_folder_of_another_node_has_our_page_and_its_files(store: Store) -> None:
    """
    The page is made here of the list whose hash was reported; of each file only the right bytes come.
    """
    files = {"a.json": b"abcdef", "deep/<b>.json": b"x", "changed": b"12345678"}
    row, listed = folder(files)
    answers = {
        "trace": HTMLResponse("<script>theirs"),
        "trace.sha256": Response(listed),
        "a.json": Response(b"abcdef"),
        "<b>.json": HTMLResponse("x"),
        "changed": Response(b"12345679"),
    }

    async def sends(request: Request) -> Response:
        return answers.get(request.url.path.rpartition("/")[2], PlainTextResponse("none", 404))

    caller = upstream(store, sends=sends, row=row)
    page = caller.get(f"/nodes/n2/artifacts/{FOLDER}")

    assert ["trace/a.json", "trace/changed", "trace/deep/%3Cb%3E.json"] == re.findall(r'href="([^"]*)"', page.text)
    assert not {"<script>", "<b>", "theirs"} & set(re.findall("<script>|<b>|theirs", page.text))
    assert page.headers["content-security-policy"].startswith("sandbox allow-downloads; default-src 'none'")
    found = caller.get(f"/nodes/n2/artifacts/{FOLDER}/a.json")
    assert (b"abcdef", "application/json") == (found.content, found.headers["content-type"])
    assert found.headers["content-disposition"].startswith("attachment")
    assert [502, 502, 404] == [
        caller.get(f"/nodes/n2/artifacts/{FOLDER}/{name}").status_code for name in ("changed", "deep/<b>.json", "c")
    ]


@pytest.mark.parametrize("listed", [b"", b"x", b"0" * 64 + b"  a.json\n", b"x" * (sums.MAX_BYTES + 1), None])
def test_a_folder_without_its_list_is_not_shown(store: Store, listed: bytes | None) -> None:
    """
    Nothing else says what is in it.
    """
    row, _ = folder({"a.json": b"abcdef"})

    async def sends(request: Request) -> Response:
        if request.url.path.endswith(sums.SUFFIX):
            return PlainTextResponse("none", 404) if listed is None else Response(listed)
        return HTMLResponse("<script>theirs")

    caller = upstream(store, sends=sends, row=row)

    for path in (FOLDER, f"{FOLDER}/a.json"):
        answer = caller.get(f"/nodes/n2/artifacts/{path}")
        assert 502 == answer.status_code
        assert "theirs" not in answer.text


def test_a_folder_that_is_stored_comes_from_there(store: Store, tmp_path: Path) -> None:
    """
    Page and files, checked alike, also when the node has gone.
    """
    row, listed = folder({"a.json": b"abcdef"}, other={"stored": STORED})
    for name, data in ((f"{FOLDER}/a.json", b"abcdef"), (f"{FOLDER}{sums.SUFFIX}", listed)):
        local(tmp_path / "runs", name, data)
    objects = Objects.open(f"file://{tmp_path}/store")
    objects.put(row, directory=tmp_path / "runs")
    caller = upstream(store, sends=sent, row=row, objects=objects)
    store.submit(lambda connection: connection.execute("UPDATE nodes SET http = ''")).result(10)

    assert "trace/a.json" in caller.get(f"/nodes/n2/artifacts/{FOLDER}").text
    assert b"abcdef" == caller.get(f"/nodes/n2/artifacts/{FOLDER}/a.json").content
    local(tmp_path / "store" / "n2", f"{FOLDER}/a.json", b"abcdeg")
    assert 502 == caller.get(f"/nodes/n2/artifacts/{FOLDER}/a.json").status_code


def test_only_so_many_are_fetched_at_a_time(store: Store) -> None:
    """
    More are told to try again; whatever becomes of a fetch, its place is free afterwards.
    """
    upstream(store, sends=sent)
    fetching = Remote(transport=httpx.ASGITransport(Starlette(routes=[Route("/artifacts/{path:path}", sent)])))
    with open_reader(store.path) as reader:
        found = find(reader, ARTIFACT)
    bad = replace(found, window=replace(found.window, sha256="0" * 64, bytes=1))

    async def nothing(*_: object) -> None:
        return None

    async def run() -> int:
        held = [await fetching.get(found) for _ in range(AT_ONCE)]
        with pytest.raises(HTTPException) as raised:
            await fetching.get(found)

        async def gone(message: object) -> None:
            raise OSError("nobody reads")

        for answer in held:
            with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever the server makes of it
                await answer({"type": "http", "method": "GET", "asgi": {"spec_version": "2.4"}}, nothing, gone)  # type: ignore[arg-type]
        for _ in range(AT_ONCE + 1):
            with pytest.raises(HTTPException):
                await fetching.get(bad)
        return raised.value.status_code

    assert 503 == asyncio.run(run())
    assert AT_ONCE == fetching._free


def test_a_fetch_from_a_store_that_never_answers_gives_its_place_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The node is asked instead; where there is none, the answer says why.
    """
    monkeypatch.setattr("stepscope_sidecar.objects.ANSWER", 0.01)
    let_go = threading.Event()

    objects = Objects(Silent(let_go), "/x", url="file:///x")
    caller = upstream(store, sends=sent, row=ready(other={"stored": STORED}), objects=objects)
    path = f"/nodes/n2/artifacts/{ARTIFACT}"

    try:
        assert [DATA] * (AT_ONCE + 1) == [caller.get(path).content for _ in range(AT_ONCE + 1)]
        store.submit(lambda connection: connection.execute("UPDATE nodes SET vanished_unix_ns = 1")).result(10)
        gone = caller.get(path)
        assert (502, True) == (gone.status_code, "does not answer" in gone.text)
    finally:
        let_go.set()


def test_what_is_stored_is_fetched_from_there(store: Store, tmp_path: Path) -> None:
    """
    Also when the node has gone; checked all the same, and asked of the node where the store has it no more.
    """
    asked: list[str] = []

    async def sends(request: Request) -> Response:
        asked.append("node")
        return await sent(request)

    objects = Objects.open(f"file://{tmp_path}/store")
    copy = local(tmp_path / "store" / "n2")
    caller = upstream(store, sends=sends, row=ready(other={"stored": STORED}), objects=objects)
    path = f"/nodes/n2/artifacts/{ARTIFACT}"

    assert DATA == caller.get(path).content
    assert [] == asked
    copy.unlink()
    assert DATA == caller.get(path).content
    assert ["node"] == asked
    store.submit(lambda connection: connection.execute("UPDATE nodes SET vanished_unix_ns = 1")).result(10)
    assert 502 == caller.get(path).status_code
    local(tmp_path / "store" / "n2", data=b"other")
    assert 502 == caller.get(path).status_code


def test_links_of_a_run_that_has_ended_lead_somewhere(tmp_path: Path) -> None:
    """
    What its pages link of another node comes from there or from the object store, also within another run's pages.
    """
    for name in ("demo-a1", "demo-a2"):
        (tmp_path / name).mkdir()
        store = Store.open(tmp_path / name / "stepscope.db", run="demo", attempt=name[-2:])
        reported(store, ready(other={"stored": STORED}))
        assert store.close(timeout=10)
    local(tmp_path / "store" / "n2")
    remote = Remote(objects=Objects.open(f"file://{tmp_path}/store"))
    caller = Caller(application(tmp_path / "demo-a1" / "stepscope.db", token="", remote=remote), host="127.0.0.1")
    for page in ("", "runs/demo-a2/"):
        link = f"nodes/n2/artifacts/{ARTIFACT}"

        assert link in caller.get(f"/{page}windows/{ready().window}").text
        assert DATA == caller.get(f"/{page}{link}").content
