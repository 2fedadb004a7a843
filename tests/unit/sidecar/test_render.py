"""
What the command line prints: nothing is cut off, nothing is taken for markup, and every end has its reason.
"""

from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar import render, windowlist
from stepscope_sidecar.rows import ProcessRow, SelectionRow
from stepscope_sidecar.store import Store
from tests.unit.sidecar.reporting import told
from tests.unit.sidecar.stored import put


def window(state: str, reason: str = "", **more: Any) -> dict[str, Any]:
    base = {"reason": reason, "detail": "", "complete": None, "incomplete_reason": "", "artifact": "", "sha256": ""}
    return {"state": state, **base, **more}


def test_the_end_of_a_run_says_why_something_was_not_recorded() -> None:
    """
    Alike ones are counted together; what was recorded whole needs no reason.
    """
    given = [
        window("ready", "boundary", complete=True),
        window("ready", "boundary", complete=True),
        window("ready", "boundary", complete=False, incomplete_reason="opened_late"),
        window("ready", "boundary", complete=True, sha256="0"),
        window("denied", "rank_not_selected"),
        window("denied", "tool_unavailable", detail="level device needs an accelerator"),
        window("denied", "tool_unavailable", detail="level device needs an accelerator"),
    ]

    assert [
        "2 ready",
        "1 ready but incomplete (opened_late)",
        "1 ready, since removed",
        "1 denied (rank_not_selected)",
        "2 denied (tool_unavailable: level device needs an accelerator)",
    ] == render.outcomes(given)


def test_text_with_brackets_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """
    An extra's name in an install command is no markup.
    """
    why = "pip install '/path/to/stepscope[vllm]'"
    entry = {"available": False, "levels": [], "unavailable": {"": why}, "note": ""}

    render.print_capabilities({"tools": {"vllm": entry}, "environment": {"level": "[spans]"}})

    printed = capsys.readouterr().out
    assert "pip install '/path/to/stepscope[vllm]'" in printed
    assert "level: [spans]" in printed


def test_what_another_node_calls_something_is_no_markup(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """
    Its roles, levels and reasons are printed letter by letter.
    """
    hostile = {"role": "[red]r", "level": "[b]l", "detail": "[link=x]d", "reason": "[i]w", "node": "n2"}
    rows = [told(5, "failed", **hostile).json(directory=None), told(6, node="n3").json(directory=None)]

    windowlist.print_windows(rows, tmp_path)

    printed = capsys.readouterr().out
    assert [text for text in hostile.values() if text not in printed] == []


def test_ids_are_whole_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """
    They are what people search for in a viewer.
    """
    name, trace = "work" * 40, "ab" * 16
    span = {
        "name": name,
        "attributes": {},
        "start_unix_ns": 0,
        "end_unix_ns": 1,
        "span_id": "cd" * 8,
        "parent_span_id": "ef" * 8,
        "trace_id": trace,
    }

    render.print_spans([span])

    printed = capsys.readouterr().out
    assert name in printed
    assert trace in printed


def test_selected_steps_that_did_not_come_are_named(tmp_path: Path) -> None:
    """
    Those before the version that was resumed from, and those after the last step.
    """
    store = Store.open(tmp_path / render.STORE, attempt="a")
    who = ProcessRow(pid=1, process_start=1, node="n", role="trainer", rank=0, resumed_from=2, closed_step=10)
    put(store, SelectionRow(revision=1, text="2,4,9-11", unix_ns=1, source="environment"), who)
    store.close()

    assert "selected but not reached: 2, 11" == render.missed_steps(tmp_path)


def test_a_step_whose_end_was_told_to_nobody_was_reached(tmp_path: Path) -> None:
    """
    The version in force, which is told again after an outage of the sidecar, says that its step is over.
    """
    store = Store.open(tmp_path / render.STORE, attempt="a")
    who = ProcessRow(pid=1, process_start=1, node="n", role="trainer", rank=0, closed_step=1, param_version=3)
    put(store, SelectionRow(revision=1, text="1-4", unix_ns=1, source="environment"), who)
    store.close()

    assert "selected but not reached: 4" == render.missed_steps(tmp_path)


def test_a_run_that_nobody_took_part_in_missed_nothing(tmp_path: Path) -> None:
    """
    There is nothing to measure it by.
    """
    Store.open(tmp_path / render.STORE, attempt="a").close()

    assert "" == render.missed_steps(tmp_path)
