"""
Processes recorded from outside, by the real py-spy, while the window of a registered process is open.
"""

import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from .attached import (
    ROOT,
    begin,
    command,
    connected,
    content,
    end,
    functions,
    hear,
    one_step,
    program,
    recorded_beside,
    recording_of,
    row,
    sampled,
    status,
    tools_of,
)
from .jobs import SETTLE_DEADLINE, eventually
from .place import Place

pytestmark = pytest.mark.usefixtures("step_two")


@pytest.mark.slow
def test_a_process_that_knows_nothing_is_recorded_in_the_window_of_another(place: Place) -> None:
    """
    From the command that names it to the recording in the list: in the selected step, and no longer.
    """
    with place.sidecar() as sidecar, program(place, "3") as trainer, program(place, "busy") as other:
        hear(trainer, "registered")
        hear(other, "busy")
        done = command(place, "profile", "--attach", str(other.pid), "--with", "trainer-0")
        assert (0, "") == (done.returncode, done.stderr)
        assert f"pid {other.pid} is recorded by py-spy in the windows of trainer-0; selected steps: 2" in done.stdout

        one_step(trainer, 1)
        begin(trainer, 2)
        row(place, "py-spy", "recording")
        sampled(sidecar)
        end(trainer, 2)
        one_step(trainer, 3)
        beside, own = row(place, "py-spy", "ready", "failed"), row(place, "torch", "ready", "failed")

        assert ("ready", "boundary", 2) == (beside.state, beside.reason, beside.step)
        assert ("trainer", 0, other.pid) == (beside.role, beside.rank, beside.pid)
        assert own.trace_id == beside.trace_id
        assert own.span_id == beside.span_id
        assert own.opened_unix_ns <= beside.opened_unix_ns < beside.closed_unix_ns
        # On a machine short of CPU the tool may miss more later than at the beginning.
        assert beside.complete is False
        assert beside.incomplete_reason in {"gap_head", "samples_missing"}
        assert "after the step began" in beside.detail
        assert 0 < (beside.incomplete_share or 0) < 1
        assert [] == tools_of(sidecar)
        assert 2 == len(place.windows())
        recording = content(place, beside)
        assert "marked_work" in functions(recording)
        assert beside.window == recording["stepscope"]["stepscope.window"]
        capture = [
            span for span in json.loads(command(place, "spans", "--json").stdout) if span["name"] == "profile.capture"
        ]
        assert [("py-spy", own.span_id)] == [
            (span["attributes"]["profile.tool"], span["parent_span_id"])
            for span in capture
            if span["attributes"]["profile.window.id"] == beside.window
        ]


def test_a_process_that_ends_in_the_window_is_lost_and_what_there_is_is_kept(place: Place) -> None:
    """
    The registered process's own window is none the worse for it.
    """
    with place.sidecar() as sidecar, program(place, "3") as trainer, program(place, "busy") as other:
        recorded_beside(place, sidecar, trainer, other)
        other.send_signal(signal.SIGKILL)
        beside = row(place, "py-spy", "aborted", "failed", "ready")
        end(trainer, 2)
        one_step(trainer, 3)
        own = row(place, "torch", "ready", "failed")

        assert ("aborted", "process_lost") == (beside.state, beside.reason)
        assert "ready" == own.state
        assert (place.folder / beside.folder / "recording.speedscope.json").is_file()
        eventually(lambda: not tools_of(sidecar))
        assert [] == status(place)["attached"]


def test_a_registered_process_can_choose_to_be_recorded_from_outside(place: Place) -> None:
    """
    Its profiler is py-spy: the process itself loads none.
    """
    place.env |= {"STEPSCOPE_TOOLS": "trainer=py-spy", "STEPSCOPE_STEPS": "1-2"}
    with place.sidecar() as sidecar, program(place, "3") as trainer:
        hear(trainer, "registered")
        for step in (1, 2):
            begin(trainer, step)
            recording_of(place, step)
            sampled(sidecar)
            end(trainer, step)
        one_step(trainer, 3)
        eventually(
            lambda: not {"finalising", "recording"} & {row.state for row in place.windows()}, deadline=SETTLE_DEADLINE
        )
        windows = place.windows()

        assert [("ready", "py-spy", trainer.pid)] * 2 == [(w.state, w.tool, w.pid) for w in windows]
        assert [1, 2] == [w.step for w in windows]
        for window in windows:
            assert "train" in functions(content(place, window))
            assert window.opened_unix_ns > 0
        eventually(lambda: not tools_of(sidecar))


def test_a_sidecar_that_is_killed_costs_a_registered_process_only_the_rest_of_its_recording(place: Place) -> None:
    """
    What the tool wrote at its end is finalised with the record that the process writes, and known to be short.
    """
    place.env |= {"STEPSCOPE_TOOLS": "py-spy", "STEPSCOPE_STEPS": "1"}
    with program(place, "2") as trainer:
        with place.sidecar() as first:
            hear(trainer, "registered")
            connected(place)
            begin(trainer, 1)
            recording_of(place, 1)
            (tool,) = tools_of(first)
            sampled(first)
            first.kill()
            first.wait()
            eventually(lambda: not psutil.pid_exists(tool))
        with place.sidecar() as second:
            end(trainer, 1)
            window = row(place, "py-spy", "ready", "failed", "aborted")

            assert ("ready", False, "gap_tail") == (window.state, window.complete, window.incomplete_reason)
            assert "train" in functions(content(place, window))
            assert [] == tools_of(second)


def test_msprof_goes_the_whole_way_with_a_stand_in(place: Place, tmp_path: Path) -> None:
    """
    A stand-in for the program, not a device: from the selection to a folder that is linked and listed.
    """
    script = tmp_path / "bin" / "msprof"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "tests/standins/msprof.py"} "$@"\n')
    script.chmod(0o755)
    place.env |= {
        "STEPSCOPE_TOOLS": "trainer=msprof",
        "STEPSCOPE_STEPS": "1",
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "PROFILING_MODE": "dynamic",
    }
    with place.sidecar(), program(place, "1") as trainer:
        hear(trainer, "registered")
        begin(trainer, 1)
        recording_of(place, 1)
        end(trainer, 1)
        window = row(place, "msprof", "ready", "failed", "aborted")
        folder = place.folder / window.artifact

        assert ("ready", "boundary", "") == (window.state, window.reason, window.detail)
        left = {"PROF_000001_20260101000000000_STANDIN", "stepscope.json", "stepscope_spans.json"}
        assert left == {path.name for path in folder.iterdir()}
        assert window.window == json.loads((folder / "stepscope.json").read_text())["stepscope.window"]
        assert window.bytes > 0


def test_no_tool_outlives_a_sidecar_that_is_killed(place: Place) -> None:
    """
    The window of the process beside is aborted by the next sidecar; what the tool wrote at its end is there.
    """
    with program(place, "3") as trainer, program(place, "busy") as other:
        with place.sidecar() as first:
            found = recorded_beside(place, first, trainer, other)
            tools = tools_of(first)
            assert 1 == len(tools)
            first.kill()
            first.wait()
            eventually(lambda: not any(psutil.pid_exists(pid) for pid in tools))
        with place.sidecar():
            end(trainer, 2)
            beside = row(place, "py-spy", "aborted", "failed", "ready")

            assert ("aborted", "sidecar_lost") == (beside.state, beside.reason)
            assert (place.folder / found.folder / "recording.speedscope.json").is_file()
            assert "ready" == row(place, "torch", "ready", "failed", "aborted").state
            assert [{"pid": other.pid, "with": "trainer-0", "tool": "py-spy"}] == status(place)["attached"]
