"""
The pages' routes over a store: which steps are shown, what is refused, and when a page is out of date.
"""

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar.digests import BusyError, Digests
from stepscope_sidecar.rows import WindowRow, upsert, values
from stepscope_sidecar.serve import application
from stepscope_sidecar.store import Store
from stepscope_sidecar.views import PAGE_STEPS
from tests.unit.sidecar.calling import Caller
from tests.unit.sidecar.ledgers import kept, step_spans
from tests.unit.sidecar.stored import WAIT, holds, put, receive, window
from tests.unit.sidecar.test_pages import Page

LAST = PAGE_STEPS + 5


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[Caller, Store]]:
    """
    A run of more steps than one page shows, and its store.
    """
    path = tmp_path / "run-a1" / "stepscope.db"
    path.parent.mkdir()
    with kept(path) as store:
        receive(store, [span for step in range(1, LAST + 1) for span in step_spans(step, seconds=1.0)])
        put(store, window(5, attempt="a1"))
        yield Caller(application(path, token=""), host="127.0.0.1"), store


def test_the_last_steps_are_shown_and_earlier_ones_on_demand(run: tuple[Caller, Store]) -> None:
    """
    A page's worth each.
    """
    caller, _ = run
    newest, earlier = (Page(caller.get(path).text) for path in ("/", f"/?before={LAST - PAGE_STEPS + 1}"))

    assert f"steps 6 to {LAST} of 1 to {LAST}" in newest.words()
    assert {"steps/6", f"steps/{LAST}", "?before=6"} <= set(newest.links())
    assert f"steps 1 to 5 of 1 to {LAST}" in earlier.words()
    assert "windows/w-5-ready" in earlier.links()


@pytest.mark.parametrize("before", ["x", "-1", "1" * 16, "1;2"])
def test_a_step_that_is_no_number_is_refused(run: tuple[Caller, Store], before: str) -> None:
    """
    With the reason.
    """
    answer = run[0].get("/", params={"before": before})

    assert (400, True) == (answer.status_code, "not a whole number" in answer.json()["error"])


def test_a_step_leads_to_its_neighbours(run: tuple[Caller, Store]) -> None:
    """
    There is none before the first; one that the run does not have is not found.
    """
    caller, _ = run
    first, middle = (set(Page(caller.get(f"/steps/{step}").text).links()) for step in (1, 5))

    assert {"2", "../"} <= first
    assert "0" not in first
    assert {"4", "6", "../windows/w-5-ready", "5/timeline.json.gz"} <= middle
    assert 404 == caller.get(f"/steps/{LAST + 1}").status_code


def test_a_mark_changes_with_what_pages_show(run: tuple[Caller, Store]) -> None:
    """
    And not otherwise, so that a page is not loaded again for nothing.
    """
    caller, store = run

    def mark() -> str:
        return str(caller.get("/api/pulse").json()["mark"])

    # The figures of a run are worked out beside the first answer.
    assert holds(lambda: caller.get("/api/status").json()["overhead_estimates"] is not None)
    first, same = mark(), mark()
    put(store, window(5, attempt="a1", sha256="changed"))
    window_changed = mark()
    receive(store, step_spans(LAST + 1, seconds=1.0))

    assert first == same
    assert 3 == len({first, window_changed, mark()})


def test_a_timeline_is_refused_while_others_are_made(
    run: tuple[Caller, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    To be asked for again; one that cannot be made says why, and no file is left.
    """
    targets: list[Path] = []

    async def busy(*_: Any) -> dict[str, str]:
        raise BusyError

    async def fails(_: Any, step: int, target: Path) -> dict[str, str]:
        targets.append(target)
        return {"error": f"step {step} has nothing"}

    monkeypatch.setattr(Digests, "merge", busy)
    refused = run[0].get("/steps/5/timeline.json.gz")
    monkeypatch.setattr(Digests, "merge", fails)
    failed = run[0].get("/steps/5/timeline.json.gz")

    assert (503, "10") == (refused.status_code, refused.headers["retry-after"])
    assert (404, "step 5 has nothing") == (failed.status_code, failed.json()["error"])
    assert [False] == [target.parent.exists() for target in targets]


def test_what_a_merged_timeline_lacks_is_said_before_it_is_made(run: tuple[Caller, Store], tmp_path: Path) -> None:
    """
    Recordings that lie on other nodes alone: how many, of which process, and what fetches them; no others.
    """
    caller, store = run
    before = Page(caller.get("/steps/5").text).words()
    artifact = "r/step-000005/shared.json"
    (tmp_path / "r" / "step-000005").mkdir(parents=True)
    (tmp_path / artifact).write_text("{}")
    told: dict[str, Any] = {"attempt": "a1", "node": "other", "role": "rollouter"}
    for rank, state, place in ((0, "ready", artifact), (1, "ready", "r/there.json"), (2, "denied", "")):
        row = window(5, state, window=f"w-{rank}", rank=rank, artifact=place, **told)
        store.submit(partial(_elsewhere, row=row)).result(WAIT)
    page = Page(caller.get("/steps/5").text).words()

    assert "spans and recordings of all processes on one clock" in before
    assert "not in it" not in before
    assert "spans and the recordings that are on this node of all processes on one clock" in page
    assert (
        "not in it: 1 recording on other nodes, of rollouter 1 (other); stepscope merge --step 5 fetches them" in page
    )


def _elsewhere(connection: sqlite3.Connection, *, row: WindowRow) -> None:
    connection.execute(upsert(row, "node_windows"), values(row))
