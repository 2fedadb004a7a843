"""
Which recordings of a step were expected and are missing, as the page of the step tells of a run that has ended.
"""

import sqlite3
from pathlib import Path

import pytest

from stepscope_sidecar.expected import accounted
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.rows import MissingRow
from stepscope_sidecar.serve import application
from tests.unit.sidecar.calling import Caller
from tests.unit.sidecar.ledgers import READY, kept, ledger_of, step_spans
from tests.unit.sidecar.stored import receive, window
from tests.unit.sidecar.test_pages import Page

LACKING = [
    MissingRow(step=5, role="trainer", rank=1, reason="not_asked"),
    MissingRow(step=5, role="trainer", rank=2, reason="never_registered"),
]


def test_a_process_is_there_or_has_a_reason() -> None:
    """
    The window of a process says more than what was found to be missing; who was not selected was not expected.
    """
    windows = [
        window(5, rank=0),
        window(5, "denied", rank=0, reason="tool_busy"),
        window(5, "failed", rank=1, reason="start_error"),
        window(5, "denied", rank=3, reason="rank_not_selected"),
        window(5, "failed", rank=4, other={"beside": "w-5-ready"}),
        window(5, "recording", rank=5),
    ]

    assert [("trainer", 0, ""), ("trainer", 1, "start_error"), ("trainer", 2, "never_registered")] == accounted(
        windows, LACKING
    )


def test_the_step_of_an_ended_run_names_ranks_that_never_came(tmp_path: Path) -> None:
    """
    The store knows, when no sidecar is there to ask any more.
    """
    path = tmp_path / "run-a1" / "stepscope.db"
    path.parent.mkdir()
    with kept(path) as store:
        ledger = ledger_of(store, tmp_path)
        ledger.window(READY, before=None)
        ledger.missing({"trainer": 2}, LACKING)
        receive(store, step_spans(5, seconds=1.0))
    words = Page(Caller(application(path, token=""), host="127.0.0.1").get("/steps/5").text).words()

    assert "1 of 3 recordings that were expected are there." in words
    assert "trainer 1 not_asked" in words
    assert "trainer 2 never_registered" in words


@pytest.mark.parametrize("table", ["missing", "node_missing"])
def test_a_store_of_an_older_release_lacks_nothing_that_it_knows_of(tmp_path: Path, table: str) -> None:
    """
    It is read all the same.
    """
    path = tmp_path / "s.db"
    with kept(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute(f"DROP TABLE {table}")
    connection.close()
    with open_reader(path) as reader:
        assert ([], []) == (reader.missing(), reader.missing_elsewhere())
