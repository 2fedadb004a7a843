"""
All runs of STEPSCOPE_DIR on one page, each with its own pages below it.
"""

from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest

from stepscope import ids
from stepscope_sidecar.serve import application
from stepscope_sidecar.store import Store
from stepscope_sidecar.views import PAGE_STEPS
from tests.unit.sidecar.calling import DATA, Caller
from tests.unit.sidecar.ledgers import step_spans
from tests.unit.sidecar.stored import put, receive, window
from tests.unit.sidecar.test_pages import Page

LAST = 5 + PAGE_STEPS
"""More than one page's worth of steps."""

ADDRESSES = ("href", "src", "data-pulse")


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    """
    A caller of what serves run a1; a2 and one that cannot be read are beside it, with things that are no runs.
    """
    for name in ("a1", "a2"):
        folder = tmp_path / f"demo-{name}"
        folder.mkdir()
        store = Store.open(folder / "stepscope.db", run="demo", attempt=name)
        try:
            put(
                store,
                window(5, attempt=name, artifact=f"demo-{name}/x.json.gz", trace_id=f"{ids.trace_id(name, 5):032x}"),
            )
            put(store, window(7, attempt=name, artifact=f"demo-{name}/folder"))
            for step in range(5, LAST + 1):
                receive(store, step_spans(step, seconds=1.0, attempt=name))
        finally:
            store.close()
        (folder / "x.json.gz").write_bytes(DATA)
        (folder / "folder").mkdir()
        (folder / "folder" / "rank 0.json").write_text("{}")
    (tmp_path / "demo-a3").mkdir()
    (tmp_path / "demo-a3" / "stepscope.db").write_text("no database")
    (tmp_path / "latest").symlink_to("demo-a1")
    (tmp_path / "other").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "stepscope.db").write_text("")
    return Caller(application(tmp_path / "demo-a1" / "stepscope.db", token=""), host="127.0.0.1")


def test_all_runs_are_listed_once(caller: Caller) -> None:
    """
    The one that is served leads to the first page; one whose store is damaged is listed with that.
    """
    page = Page(caller.get("/runs").text)

    assert {"./", "runs/demo-a2/", "runs/demo-a3/"} == set(page.links())
    assert "demo a2 ended" in page.words()
    assert "demo-a3 ended cannot be read" in page.words()
    assert not [word for word in ("latest", "other", "hidden") if word in page.words()]


def test_each_has_its_pages_below_it(caller: Caller) -> None:
    """
    Its run, its steps, its windows and its data, with what they load; nothing can be ordered of it.
    """
    run = Page(caller.get("/runs/demo-a2/").text)

    assert "demo a2" in run.words()
    for path in ("steps/5", "windows/w-5-ready", "static/live.js", "api/windows", "api/pulse"):
        assert (path, 200) == (path, caller.get(f"/runs/demo-a2/{path}").status_code)
    assert "a2" == caller.get("/runs/demo-a2/api/windows").json()[0]["attempt"]
    assert 400 == caller.post("/runs/demo-a2/api/stop", json={}).status_code
    assert 503 == caller.get("/runs/demo-a3/").status_code


@pytest.mark.parametrize("name", ["latest", "other", ".hidden", "nothing"])
def test_what_is_no_run_has_no_pages(caller: Caller, name: str) -> None:
    """
    No way out of STEPSCOPE_DIR, and no run under two names.
    """
    assert caller.get(f"/runs/{name}/").status_code in {404, 307}


def _walked(caller: Caller, start: str) -> dict[str, int]:
    """
    What answered to each address that pages lead to or load, from ``start`` on.
    """
    found: dict[str, int] = {}
    left = [start]
    while left:
        path = left.pop()
        if path in found:
            continue
        # A recording is not sent for that, nor a timeline made; a folder is a page.
        answer = caller.request("HEAD" if path.endswith(".gz") else "GET", path)
        found[path] = answer.status_code
        if answer.status_code == 307:
            left.append(urljoin(path, answer.headers["location"]))
        if "text/html" in answer.headers.get("content-type", "") and answer.content:
            told = [attributes.get(key) for _, attributes in Page(answer.text).tags for key in ADDRESSES]
            # One that leads outside is nothing that this server answers.
            left += [urldefrag(urljoin(path, one))[0] for one in told if one and not urlsplit(one).netloc]
    return found


def test_every_link_of_every_page_leads_somewhere(caller: Caller) -> None:
    """
    From a run that is served within another's pages all runs are reached, that other too, with pages of all kinds.
    """
    found = _walked(caller, "/runs/demo-a2/")

    assert {"/runs/demo-a3/": 503} == {path: status for path, status in found.items() if status != 200}
    for path in ("", "steps/5", "windows/w-5-ready", "artifacts/demo-a2/folder/rank%200.json", "?before=6", "metrics"):
        assert f"/runs/demo-a2/{path}" in found
    assert {"/", "/runs", "/static/stepscope.css", f"/traces/{ids.trace_id('a1', 5):032x}"} <= found.keys()
