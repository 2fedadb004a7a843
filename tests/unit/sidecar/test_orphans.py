"""
Windows whose sidecar never came back, as a reader sees them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.names import Reason, State
from stepscope_sidecar import lifecycle, orphans
from stepscope_sidecar.rows import WindowRow
from tests.unit.sidecar.stored import window


def row(state: State, **changes: Any) -> WindowRow:
    return window(3, state, **{"node": "here", "process_start": 5, **changes})


def seen(given: WindowRow, *, attended: bool = False, lives: bool = False) -> tuple[str, str]:
    [found] = orphans.shown([given], attended=attended, node="here", alive=lambda *_: lives)
    return found.state, found.reason


@pytest.mark.parametrize("state", [State.OPENING, State.RECORDING, State.CLOSING, State.FINALISING])
def test_a_window_that_nobody_will_end_says_so(state: State) -> None:
    """
    Without a sidecar and a process it stays in no state that promises more.
    """
    expected = (State.ABORTED, Reason.SIDECAR_LOST)

    assert seen(row(state)) == expected


def test_a_window_that_can_still_end_is_left_alone() -> None:
    """
    While its process or a sidecar lives, or where it is of another node.
    """
    given = row(State.RECORDING)

    assert seen(given, lives=True) == (State.RECORDING, "")
    assert seen(given, attended=True) == (State.RECORDING, "")
    assert seen(row(State.RECORDING, node="elsewhere")) == (State.RECORDING, "")


def test_a_final_window_is_left_alone() -> None:
    """
    What has ended keeps its state and reason.
    """
    given = row(State.DENIED, reason=Reason.BUSY_PROCESS)

    assert seen(given) == (State.DENIED, Reason.BUSY_PROCESS)


def test_a_run_is_attended_while_its_sidecar_holds_the_lock(tmp_path: Path) -> None:
    """
    The lock tells, not the note that a killed sidecar leaves.
    """
    socket = tmp_path / "s" / "a.sock"
    lifecycle.announce(tmp_path, {"socket": str(socket)})

    assert not orphans.attended(tmp_path)
    lock = lifecycle.acquire(socket)
    assert lock is not None
    assert orphans.attended(tmp_path)
    lock.release()
    assert not orphans.attended(tmp_path)


def test_a_run_whose_note_is_damaged_is_not_attended(tmp_path: Path) -> None:
    """
    The note may be of anybody's making.
    """
    (tmp_path / lifecycle.SIDECAR_FILE).write_text(json.dumps({"socket": 5}))

    assert not orphans.attended(tmp_path)
