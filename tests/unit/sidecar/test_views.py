"""
The pages that links in a trace view lead to.
"""

from pathlib import Path

import pytest

from stepscope import ids
from stepscope.names import Incomplete, Reason
from stepscope_sidecar.reasons import INCOMPLETE, REASONS, meaning
from stepscope_sidecar.store import Store
from tests.unit.sidecar.calling import FakeController, calling
from tests.unit.sidecar.stored import put, window
from tests.unit.sidecar.test_pages import Page

OWN = f"{ids.trace_id('a1', 5):032x}"
REQUEST = f"{ids.request_trace_id('a1', 5, 3):032x}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """
    A STEPSCOPE_DIR with a window that recorded steps 4 and 5, and one of step 9.
    """
    (tmp_path / "demo-a1").mkdir()
    store = Store.open(tmp_path / "demo-a1" / "stepscope.db", run="demo", attempt="a1")
    try:
        put(
            store,
            window(
                4,
                attempt="a1",
                window="000004-trainer-0",
                artifact="demo-a1/step-000004/trainer-0-7/torch/recording.json.gz",
                bytes=2048,
                sha256="ab" * 32,
                complete=True,
                trace_id=f"{ids.trace_id('a1', 4):032x}",
                span_id="c" * 16,
                opened_unix_ns=1_700_000_000_123_000_000,
                closed_unix_ns=1_700_000_001_623_000_000,
                stall_seconds={"start": 0.25},
                other={"last_step": 5},
            ),
            window(9, "denied", attempt="a1", window="000009-trainer-0", reason="rank_not_selected"),
        )
    finally:
        store.close()
    return tmp_path


def test_a_window_has_a_page_that_leads_to_its_recording(folder: Path, live: FakeController) -> None:
    """
    By its id, as the capture span has it; it says how complete the recording is and what it cost.
    """
    answer = calling(folder, live).get("/windows/000004-trainer-0")
    page = Page(answer.text)

    assert (200, "text/html; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert "../artifacts/demo-a1/step-000004/trainer-0-7/torch/recording.json.gz" in page.links()
    assert f"../traces/{ids.trace_id('a1', 4):032x}" in page.links()
    for text in (
        "steps 4-5",
        "complete yes",
        "2.0 KiB",
        "stall, start 250.0 ms",
        "opened 2023-11-14 22:13:20.123 UTC",
        "recorded for 1.50 s",
    ):
        assert text in page.words()


@pytest.mark.parametrize("trace", [OWN, REQUEST, OWN.upper()])
def test_a_trace_has_a_page_of_what_was_recorded_of_it(folder: Path, live: FakeController, trace: str) -> None:
    """
    Of a step, of a step that shares its window, and of the trace of one of its requests.
    """
    answer = calling(folder, live).get(f"/traces/{trace}")
    page = Page(answer.text)

    assert 200 == answer.status_code
    assert "../windows/000004-trainer-0" in page.links()
    assert "../windows/000009-trainer-0" not in page.links()
    assert f"../api/traces/{trace.lower()}" in page.links()


def test_what_was_not_recorded_is_said(folder: Path, live: FakeController) -> None:
    """
    A denied window has a page without a recording; of a trace without one the page says so.
    """
    caller = calling(folder, live)
    denied = Page(caller.get("/windows/000009-trainer-0").text)
    none = caller.get(f"/traces/{ids.trace_id('a1', 7):032x}")

    assert "recording none state denied : rank_not_selected" in denied.words().replace("denied:", "denied :")
    assert (404, True) == (none.status_code, "No recording of this trace" in none.text)
    assert 404 == caller.get("/windows/nothing").status_code
    assert 400 == caller.get("/traces/nothing").status_code


def test_a_window_that_was_denied_says_what_its_reason_means(folder: Path, live: FakeController) -> None:
    """
    In the words of the reference; it has no trace, and nothing is said of one.
    """
    page = Page(calling(folder, live).get("/windows/000009-trainer-0").text)

    assert "reason STEPSCOPE_RANKS does not hold this rank" in page.words()
    assert "There is no recording." in page.words()
    assert "trace" not in page.words().split()


def test_a_recording_that_was_removed_is_shown_as_removed(folder: Path, live: FakeController) -> None:
    """
    In the timeline, among the windows, and on its own page, with the reason.
    """
    store = Store.open(folder / "demo-a1" / "stepscope.db", run="demo", attempt="a1")
    try:
        gone = window(6, attempt="a1", sha256="ab" * 32, bytes=7, detail="the recording was removed: older than 1 s")
        put(store, gone)
    finally:
        store.close()
    caller = calling(folder, live)
    run, step, own = (Page(caller.get(path).text).words() for path in ("/", "/steps/6", f"/windows/{gone.window}"))

    assert "◌ removed" in run
    assert "7 B removed open" in step
    assert "is being read" not in step
    assert "recording removed" in own
    assert "older than 1 s" in own
    assert "Its recording was removed." in own


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [("windows/nope", 404, "No such window."), ("steps/77", 404, "Nothing is known of step 77."), ("x/y/", 404, "")],
)
def test_a_browser_is_told_on_a_page_that_there_is_nothing(
    folder: Path, live: FakeController, path: str, status: int, told: str
) -> None:
    """
    With a way on that is right wherever the page lies; a program gets JSON.
    """
    caller = calling(folder, live)
    answer = caller.get(f"/{path}", headers={"accept": "text/html,*/*;q=0.8"})
    page = Page(answer.text)
    top = "../" * path.count("/")

    assert (status, "text/html; charset=utf-8") == (answer.status_code, answer.headers["content-type"])
    assert told in page.words()
    assert [top or "./", f"{top}runs"] == page.links()
    assert "error" in caller.get(f"/{path}").json()


def test_every_reason_has_its_sentence() -> None:
    """
    And one of another release none.
    """
    assert set(Reason) == set(REASONS)
    assert set(Incomplete) == set(INCOMPLETE)
    assert "" == meaning("of_tomorrow", REASONS)
