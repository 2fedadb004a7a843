"""
Windows whose recording is made from outside, by a stand-in for py-spy.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from stepscope import ids, wire
from stepscope.names import Reason, State
from stepscope_sidecar.attach import leftovers, py_spy, target, tools
from stepscope_sidecar.surroundings import read_record

from .attaching import DEADLINE, WELL, Desk, StandIn, at_desk, somebody
from .rig import SPAN, TRACE, started

OTHER = "import signal; signal.pause()"


def test_a_process_that_chose_such_a_tool_is_granted_a_window_without_a_level(tmp_path: Path) -> None:
    """
    Its driver there has nothing to do.
    """

    async def work(desk: Desk) -> None:
        with somebody() as process:
            window = desk.open(desk.process(process.pid))
            grant = desk.link.last()

        assert isinstance(grant, wire.Grant)
        assert ("py-spy", "") == (grant.tool, grant.level)
        assert State.OPENING == window.state

    at_desk(tmp_path, work)


def test_the_window_records_when_its_tool_does_and_its_record_tells_both_times(tmp_path: Path) -> None:
    """
    The tool's are the window's; those of the step are in the metadata, for whoever looks for gaps.
    """

    async def work(desk: Desk) -> None:
        with somebody() as target:
            process = desk.process(target.pid)
            window = desk.begin(process)
            assert State.OPENING == desk.ledger.rows[window.window].state
            recording = await desk.state(window, State.RECORDING)
            desk.end(process, window)
            record = await desk.given(window)

        assert (TRACE, SPAN) == (recording.trace_id, recording.span_id)
        assert recording.opened_unix_ns == record.opened_unix_ns < record.closed_unix_ns
        assert ("5", "9") == tuple(record.metadata[f"stepscope.{key}_unix_ns"] for key in ("since", "until"))
        assert ("recording.speedscope.json", "boundary") == (record.artifact, record.reason)
        assert State.FINALISING == desk.ledger.rows[window.window].state
        assert record == read_record(desk.folder / window.folder / "closed.json")
        assert not (desk.folder / window.folder / leftovers.NAME).exists()

    at_desk(tmp_path, work)


def test_a_step_that_is_over_before_the_tool_records_has_no_recording(tmp_path: Path) -> None:
    """
    And says so; nothing is left of the tool.
    """

    async def work(desk: Desk) -> None:
        with somebody() as target:
            process = desk.process(target.pid)
            window = desk.begin(process)
            desk.end(process, window)
            ended = await desk.state(window, State.FAILED)

        assert Reason.NO_ARTIFACT == ended.reason
        assert "the step was over before py-spy recorded" == ended.detail
        assert 0 == ended.opened_unix_ns

    at_desk(tmp_path, work, StandIn("signal.sigwait([signal.SIGTERM])"))


@pytest.mark.parametrize(
    ("tool", "reason", "detail"),
    [
        (StandIn("print('Error: out of order'); sys.exit(1)"), "start_error", "Error: out of order"),
        (StandIn(in_the_way="pid 1: forbidden"), "start_error", "py-spy cannot record pid 1: forbidden"),
        (StandIn("print('recording'); sys.exit(3)"), "stop_error", "py-spy ended by itself: recording"),
        (StandIn(WELL + "sys.exit(4)"), "stop_error", "ended with 4"),
        (StandIn("print('recording', flush=True); signal.sigwait([signal.SIGINT])"), "no_artifact", "nothing"),
    ],
    ids=["refuses", "forbidden", "ends by itself", "fails at the end", "writes nothing"],
)
def test_a_tool_that_fails_ends_the_window_with_its_reason(
    tmp_path: Path, tool: StandIn, reason: str, detail: str
) -> None:
    """
    Whenever it does.
    """

    async def work(desk: Desk) -> None:
        with somebody() as target:
            process = desk.process(target.pid)
            window = desk.begin(process)
            found = await desk.state(window, State.RECORDING, State.FAILED)
            if found.state is State.RECORDING and "itself" not in detail:
                desk.end(process, window)
            ended = await desk.state(window, State.FAILED)

        assert reason == ended.reason
        assert detail in ended.detail

    at_desk(tmp_path, work, tool)


def test_what_a_tool_said_counts_though_its_process_has_ended_too(tmp_path: Path) -> None:
    """
    That the process ended with the step is no reason for a tool to leave nothing.
    """

    async def work(desk: Desk) -> None:
        with somebody() as target:
            process = desk.process(target.pid)
            window = desk.begin(process)
            await desk.state(window, State.RECORDING)
            desk.end(process, window)
            ended = await desk.state(window, State.FAILED)

        assert Reason.STOP_ERROR == ended.reason
        assert "ended with 4" in ended.detail

    text = "print('recording', flush=True); signal.sigwait([signal.SIGINT])"
    at_desk(tmp_path, work, StandIn(f"{text}; import os; os.kill(pid, signal.SIGKILL); sys.exit(4)"))


def test_a_folder_that_cannot_be_made_keeps_the_tool_from_starting(tmp_path: Path) -> None:
    """
    Something else has its name, or there is no room.
    """

    async def work(desk: Desk) -> None:
        with somebody() as target:
            process = desk.process(target.pid)
            window = desk.open(process)
            place = desk.folder / window.folder
            place.parent.parent.mkdir(parents=True)
            place.parent.touch()
            desk.recordings.started(process, started(window.window))
            ended = await desk.state(window, State.FAILED)

        assert Reason.START_ERROR == ended.reason
        assert "folder cannot be made" in ended.detail

    at_desk(tmp_path, work)


def test_a_pid_that_was_used_again_is_not_recorded(tmp_path: Path) -> None:
    """
    Its start tells that it is another process.
    """

    async def work(desk: Desk) -> None:
        with somebody() as target:
            process = desk.process(target.pid)
            process.process_start -= 1
            window = desk.begin(process)
            ended = await desk.state(window, State.FAILED)

        assert Reason.PROCESS_LOST == ended.reason
        assert "the pid was used again" in ended.detail

    at_desk(tmp_path, work)


def test_a_tool_that_is_not_here_is_a_denial_with_its_reason(tmp_path: Path) -> None:
    """
    The process cannot know: the sidecar's word counts.
    """

    async def work(desk: Desk) -> None:
        process = desk.process(os.getpid())
        desk.recordings.open(process, wire.Open(id=1, step=5, param_version=4), desk.plan)
        (row,) = desk.ledger.rows.values()

        assert wire.Deny(id=1, reason="tool_unavailable") == desk.link.last()
        assert ("tool_unavailable", "py-spy is not installed") == (row.reason, row.detail)

    at_desk(tmp_path, work, StandIn(missing="py-spy is not installed"))


def test_the_next_window_waits_for_the_last_ones_tool(tmp_path: Path) -> None:
    """
    Never two tools on one process: the second begins when the first has written its file.
    """
    text = """
import os
assert not os.path.exists("../../../../running"), "two at once"
open("../../../../running", "w").close()
print("recording", flush=True)
signal.sigwait([signal.SIGINT])
os.unlink("../../../../running")
open("recording.speedscope.json", "w").write("{}")
"""

    async def work(desk: Desk) -> None:
        with somebody() as target:
            process = desk.process(target.pid)
            first = desk.begin(process, 8)
            await desk.state(first, State.RECORDING)
            desk.end(process, first)
            second = desk.begin(process, 9)
            await desk.state(second, State.RECORDING, State.FAILED)
            desk.end(process, second)
            await desk.given(first)
            await desk.given(second)

    at_desk(tmp_path, work, StandIn(text))


def test_a_program_that_has_gone_since_the_sidecar_began_ends_the_window_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Nothing is started by a bare name, which would be looked for elsewhere.
    """
    monkeypatch.setattr(target, "obstacle", lambda pid: "")
    monkeypatch.setattr(target, "restriction", lambda: "")
    monkeypatch.setattr(py_spy, "program", lambda name: f"/somewhere/{name}")
    monkeypatch.setattr(tools, "program", lambda name: "")

    async def work() -> None:
        desk = Desk(tmp_path, py_spy.PySpy())
        with somebody() as other:
            window = desk.begin(desk.process(other.pid))
            ended = await desk.state(window, State.FAILED)
        await desk.attachments.close()

        assert (Reason.TOOL_UNAVAILABLE, "py-spy is not there any more") == (ended.reason, ended.detail)

    asyncio.run(work())


def test_tools_write_what_they_have_when_the_sidecar_ends(tmp_path: Path) -> None:
    """
    The next sidecar finds it with the record that the process writes itself.
    """

    async def work(desk: Desk) -> None:
        with somebody() as target:
            window = desk.begin(desk.process(target.pid))
            await desk.state(window, State.RECORDING)
            await desk.attachments.close()

        assert (desk.folder / window.folder / "recording.speedscope.json").is_file()
        assert {} == desk.submitted

    at_desk(tmp_path, work)


def test_a_tool_whose_sidecar_is_gone_is_killed_by_the_next(tmp_path: Path) -> None:
    """
    Only if it is still the same process, and has not ended.
    """
    folder, again, ended = (tmp_path / f"step-00000{step}/trainer-0-1/py-spy" for step in (5, 6, 7))
    processes = []
    for place in (folder, again, ended):
        place.mkdir(parents=True)
        process = subprocess.Popen([sys.executable, "-c", OTHER], start_new_session=True)
        leftovers.note(place, process.pid)
        processes.append(process)
    told = {"pid": processes[1].pid, "process_start": ids.process_start(processes[1].pid) - 1}
    (again / leftovers.NAME).write_text(json.dumps(told))
    try:
        processes[2].kill()
        os.waitid(os.P_PID, processes[2].pid, os.WEXITED | os.WNOWAIT)
        assert 1 == leftovers.sweep(tmp_path)

        assert -signal.SIGKILL == processes[0].wait(DEADLINE)
        assert psutil.pid_exists(processes[1].pid)
        assert [] == list(tmp_path.rglob(leftovers.NAME))
    finally:
        for process in processes:
            process.kill()
            process.wait()
