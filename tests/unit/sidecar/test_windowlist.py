"""
The windows as a person reads them: ids whole, words whole, and what was not recorded with its reason.
"""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stepscope_sidecar import windowlist
from tests.unit.sidecar.stored import window

SHA = "0" * 64

ID = "000005-rollouter-0-4242-torch-a1b2c3"

ROWS = [
    window(
        5,
        window=ID,
        role="rollouter",
        complete=True,
        artifact="r-a/step-000005/rollouter-0/torch/recording.json.gz",
        sha256=SHA,
        bytes=960_307,
        stall_seconds={"start": 0.02},
    ),
    window(6, "denied", window=ID.replace("5", "6"), reason="rank_not_selected"),
    window(7, "failed", window=ID.replace("5", "7"), reason="start_error", detail="no such device: cuda 9"),
    window(8, window=ID.replace("5", "8"), other={"last_step": 9}, sha256=SHA, complete=True, bytes=10),
]


def test_at_100_columns_no_word_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    The ids are those that `show` and `open` take; paths are not here.
    """
    monkeypatch.setattr(windowlist, "console", lambda: Console(width=100, highlight=False))

    windowlist.print_windows([row.json(directory=tmp_path) for row in ROWS], tmp_path)

    printed = capsys.readouterr().out
    words = set(printed.split())
    assert max(map(len, printed.splitlines())) <= 100
    assert {row.window for row in ROWS} <= words
    assert {"rank_not_selected", "rollouter", "start_error:", "8-9:"} <= words
    assert "5: v4 to v5" in printed
    assert "recording.json.gz" not in printed


def test_a_terminal_that_is_too_narrow_breaks_no_word_either(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    Lines are longer than it then.
    """
    monkeypatch.setattr(windowlist, "console", lambda: Console(width=40, highlight=False))

    windowlist.print_windows([row.json(directory=tmp_path) for row in ROWS], tmp_path)

    assert {ROWS[0].window, "rank_not_selected"} <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"complete": True, "artifact": "x", "bytes": 2048}, "complete, 2.0 KiB"),
        (
            {"complete": False, "incomplete_reason": "capped", "incomplete_share": 0.25, "artifact": "x"},
            "incomplete: capped, 25% missing",
        ),
        ({"complete": True, "sha256": SHA, "bytes": 10}, "complete: removed"),
        (
            {
                "complete": True,
                "sha256": SHA,
                "detail": "the recording was removed: to keep within STEPSCOPE_KEEP_BYTES",
            },
            "complete: removed: to keep within STEPSCOPE_KEEP_BYTES",
        ),
        ({"state": "failed", "reason": "start_error", "detail": "no such device"}, "start_error: no such device"),
        ({"state": "aborted", "reason": "process_died"}, "process_died"),
        ({"reason": "boundary"}, ""),
    ],
)
def test_what_is_not_there_says_why(changes: dict[str, Any], said: str) -> None:
    """
    With its detail, as the runbook has it; a recording that retention removed is told as removed.
    """
    assert said == windowlist.remark(window(5, **changes).json(directory=None))
