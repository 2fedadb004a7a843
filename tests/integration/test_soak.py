"""
Two hundred windows in processes that go on training: nothing crashes, nothing is lost, nothing grows.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.integration.programs import check_finished, run_program, settle

pytest.importorskip("torch")

WINDOWS = {"spans": 80, "ops": 60, "full": 60}
"""By level; fewer where each takes longer."""

CAP = "2"
"""Seconds that a window may take here. Those that are to be ended otherwise take some hundredths."""

GROWTH = 128 * 1024
"""Bytes of heap a window that the process may grow by: about ten times what torch keeps of each session for good. A
recording that stayed in memory would be megabytes."""

BLOCKS = 1000
"""Python's small blocks a window, for names and rows that are kept; an object for each operator would be more."""

LIMIT = 300.0
"""Seconds for one level on a machine that others use too; it takes about 40."""


@pytest.mark.slow
@pytest.mark.parametrize("level", WINDOWS)
def test_soak(tmp_path: Path, level: str) -> None:
    """
    Ended by boundary, cap, stop and exit while three other threads train: each recording is whole and says how.
    """
    count = WINDOWS[level]
    job = run_program(
        tmp_path,
        "tests.integration.soak",
        str(count),
        deadline=LIMIT,
        STEPSCOPE_STEPS="every:1",
        STEPSCOPE_LEVEL=level,
        STEPSCOPE_CAP_SECONDS=CAP,
    )
    settle(job, deadline=LIMIT)
    ready = [window for window in job.windows if window["state"] == "ready"]
    reasons = Counter(window["reason"] for window in ready)

    assert 0 == job.code, job.errors[-2000:]
    assert count == len(ready), job.states()
    # Expired: the grant came after a busy process had given up asking.
    assert {"ready", "denied", "expired"} >= set(job.states())
    assert {level} == {window["level"] for window in ready}
    assert {"boundary", "cap_seconds", "stopped_by_user", "process_exit"} == set(reasons)
    assert 1 == reasons["process_exit"]
    assert reasons["boundary"] > count / 2
    check_finished(job)
    (row,) = job.rows
    grown = {name: row["after"][name] - row["before"][name] for name in row["after"]}
    windows = count - count // 3
    assert grown["heap"] <= windows * GROWTH, grown
    assert grown["blocks"] <= windows * BLOCKS, grown
    # A connection may be made anew at the moment of looking.
    assert grown["threads"] <= 1, grown
    assert grown["descriptors"] <= 2, grown
