"""
How a run stands where no sidecar answers: what its store says, and which of its processes live.
"""

import os
import time
from pathlib import Path

import pytest

from stepscope import ids
from stepscope_sidecar import schema, standing
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.rows import ProcessRow
from stepscope_sidecar.store import Store
from tests.unit.sidecar.stored import put, window

ESTIMATE = Estimate(
    role="trainer",
    stall=1.0,
    slowdown=None,
    ratio=None,
    wall_ratio=None,
    why="2 unprofiled steps, 3 are needed",
    costs=(),
)


def process(pid: int, *, rank: int, node: str, ended: int = 0) -> ProcessRow:
    """
    A registration of ``pid``, of whichever process has that number.
    """
    return ProcessRow(
        pid=pid,
        process_start=0,
        node=node,
        role="trainer",
        rank=rank,
        entered_step=4,
        registered_unix_ns=rank + 1,
        ended_unix_ns=ended,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """
    A run of which one process lives here, one has ended, one is of another node, and one window was open.
    """
    with_store = tmp_path / "r-a"
    with_store.mkdir()
    store = Store.open(with_store / schema.FILE, run="r", attempt="a")
    put(
        store,
        process(os.getpid(), rank=0, node=ids.node()),
        process(os.getpid(), rank=1, node=ids.node(), ended=9),
        process(os.getpid(), rank=2, node="elsewhere"),
        window(4, "recording", node=ids.node(), pid=os.getpid(), opened_unix_ns=time.time_ns() - 10**9),
        window(3, node=ids.node()),
    )
    store.close()
    return with_store


def test_a_process_that_lives_is_told_from_one_that_nothing_is_known_of(folder: Path) -> None:
    """
    By its pid on this node alone.
    """
    found = standing.status(folder, headers={})

    assert [True, False, None] == [item["alive"] for item in found["processes"]]
    assert (False, {"ready": 1, "recording": 1}) == (found["live"], found["windows"])


def test_a_window_that_is_open_has_its_process_and_its_age(folder: Path) -> None:
    """
    As a live sidecar tells it.
    """
    (opened,) = standing.status(folder, headers={})["open"]

    assert ("trainer", 0, os.getpid(), 4) == tuple(opened[key] for key in ("role", "rank", "pid", "step"))
    assert opened["age_seconds"] >= 1.0


def test_what_it_cost_is_from_the_store(folder: Path) -> None:
    """
    With the reason where that is unknown; None while it is being reckoned.
    """
    found = standing.status(folder, headers={}, estimates=lambda: {"trainer": ESTIMATE})
    unknown = standing.status(folder, headers={}, estimates=lambda: None)

    assert "2 unprofiled steps, 3 are needed" == found["overhead_estimates"]["trainer"]["unknown"]
    assert unknown["overhead_estimates"] is None
