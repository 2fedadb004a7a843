"""
What profiling cost, reckoned aside from a store that no controller looks after.
"""

import threading
from pathlib import Path

import pytest

from stepscope_sidecar import reckoned
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.reckoned import Reckoned
from stepscope_sidecar.store import Store
from tests.unit.sidecar.stepped import estimate
from tests.unit.sidecar.stored import WAIT, holds


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A page waits for as long as it takes.
    """
    monkeypatch.setattr(reckoned, "PATIENCE", WAIT)


@pytest.mark.usefixtures("patient")
def test_a_store_is_reckoned_again_when_it_has_changed(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    And not before.
    """
    asked: list[int] = []

    def refresh(_: Costs) -> dict[str, Estimate]:
        asked.append(1)
        return {"trainer": estimate()}

    monkeypatch.setattr(Costs, "refresh", refresh)
    found = Reckoned(path)
    first = [found.estimates(), found.estimates()]
    before = len(asked)
    store.submit(lambda connection: connection.execute("INSERT INTO meta VALUES ('x', 'y')")).result(WAIT)
    path.touch()
    again = found.estimates()

    assert [{"trainer": estimate()}] * 2 == first
    assert 1 == before
    assert {"trainer": estimate()} == again
    assert 2 == len(asked)


def test_a_page_does_not_wait(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It says that there is nothing yet, and one thread alone reckons.
    """
    may, asked = threading.Event(), []

    def refresh(_: Costs) -> dict[str, Estimate]:
        asked.append(1)
        assert may.wait(WAIT)
        return {}

    monkeypatch.setattr(Costs, "refresh", refresh)
    monkeypatch.setattr(reckoned, "PATIENCE", 0.0)
    found = Reckoned(path)
    first = [found.estimates(), found.estimates()]
    may.set()

    assert [None, None] == first
    assert holds(lambda: found.estimates() == {})
    assert 1 <= len(asked)
    assert holds(lambda: "overhead" not in [thread.name for thread in threading.enumerate()])


@pytest.mark.usefixtures("patient")
def test_a_store_that_cannot_be_read_has_no_estimates(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nothing is raised on the thread.
    """

    def refresh(_: Costs) -> dict[str, Estimate]:
        raise StoreError("gone")

    monkeypatch.setattr(Costs, "refresh", refresh)
    path.touch()

    assert {} == Reckoned(path).estimates()
