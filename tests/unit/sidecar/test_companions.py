"""
Processes recorded from outside along with a registered one, by a stand-in for py-spy.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepscope import wire
from stepscope.names import Reason, State
from stepscope_sidecar.attach.companions import Companions
from stepscope_sidecar.errors import AttachError
from stepscope_sidecar.processes import Process
from stepscope_sidecar.windows import Window

from .attaching import Desk, StandIn, at_desk, somebody
from .rig import SPAN, TRACE, started


@contextmanager
def pair(desk: Desk) -> Iterator[tuple[Process, "subprocess.Popen[bytes]"]]:
    """
    A registered process, and one that is to be recorded along with it.
    """
    with somebody() as target, somebody() as other:
        desk.attachments.attach(desk.companion(other.pid), known=False)
        yield desk.process(target.pid), other


def after(folder: Path, end: Callable[[Desk, Process, Window], None]) -> tuple[wire.Closed, Window]:
    """
    The record of a process beside, once ``end`` has ended the registered one's window, and what became of that.
    """
    found: list[tuple[wire.Closed, Window]] = []

    async def work(desk: Desk) -> None:
        with pair(desk) as (process, _):
            window = desk.begin(process)
            beside = await desk.beside(State.RECORDING)
            end(desk, process, desk.ledger.rows[window.window])
            record = await desk.given(beside)
            found.append((record, desk.ledger.rows[window.window]))

    at_desk(folder, work, tools="torch")
    return found[0]


def test_a_process_beside_is_recorded_from_the_start_of_the_others_window_to_its_end(tmp_path: Path) -> None:
    """
    Its row has the role and rank of the other, its own pid, and the same place in the trace.
    """

    async def work(desk: Desk) -> None:
        with pair(desk) as (process, other):
            window = desk.begin(process)
            assert State.RECORDING == desk.ledger.rows[window.window].state
            beside = await desk.beside(State.RECORDING)
            desk.end(process, window)
            record = await desk.given(beside)
            final = desk.ledger.rows[beside.window]

        assert ("trainer", 0, other.pid, "py-spy", 5) == (final.role, final.rank, final.pid, final.tool, final.step)
        assert (TRACE, SPAN, window.window) == (final.trace_id, final.span_id, final.beside)
        assert f"run-a1/step-000005/trainer-0-{other.pid}/py-spy" == final.folder
        assert ("boundary", 5) == (record.reason, record.version_at_close)
        assert str(other.pid) == record.metadata["stepscope.pid"]
        assert window.window in desk.submitted

    at_desk(tmp_path, work, tools="torch")


def test_a_process_beside_that_ends_is_lost_and_its_leftovers_are_kept(tmp_path: Path) -> None:
    """
    The window ends as aborted; the tool had noticed and written.
    """
    text = """
import os, select
print("recording", flush=True)
select.select([os.pidfd_open(pid)], [], [])
open("recording.speedscope.json", "w").write("{}")
"""

    async def work(desk: Desk) -> None:
        with pair(desk) as (process, other):
            window = desk.begin(process)
            beside = await desk.beside(State.RECORDING)
            other.kill()
            lost = await desk.beside(State.ABORTED)

        assert Reason.PROCESS_LOST == lost.reason
        assert (desk.folder / beside.folder / "recording.speedscope.json").is_file()
        assert State.RECORDING == desk.ledger.rows[window.window].state
        assert [] == desk.companions.all()

    at_desk(tmp_path, work, StandIn(text), tools="torch")


def test_a_process_beside_one_that_was_lost_keeps_its_recording(tmp_path: Path) -> None:
    """
    It says why it is short.
    """

    def lose(desk: Desk, process: Process, window: Window) -> None:
        desk.recordings.give_up(window, Reason.PROCESS_LOST)

    record, own = after(tmp_path, lose)

    assert ("process_lost", "process_exit") == (record.reason, record.incomplete)
    assert State.ABORTED == own.state


def test_a_process_beside_one_whose_profiler_fails_keeps_its_recording(tmp_path: Path) -> None:
    """
    That failure is no reason of its own.
    """

    def fail(desk: Desk, process: Process, window: Window) -> None:
        desk.recordings.ended(process, wire.Ended(window=window.window, state="failed", reason="stop_error"))

    record, own = after(tmp_path, fail)

    assert ("boundary", "") == (record.reason, record.incomplete)
    assert (State.FAILED, "stop_error") == (own.state, own.reason)


def test_a_process_beside_that_is_gone_when_the_window_opens_is_lost(tmp_path: Path) -> None:
    """
    As one that ends later.
    """

    async def work(desk: Desk) -> None:
        with pair(desk) as (process, other):
            desk.begin(process)
            # Its tool is not started before the loop gets to it.
            other.kill()
            other.wait()
            lost = await desk.beside(State.ABORTED, State.FAILED)

        assert (State.ABORTED, Reason.PROCESS_LOST) == (lost.state, lost.reason)

    at_desk(tmp_path, work, tools="torch")


def test_a_stop_ends_the_recording_of_a_process_beside(tmp_path: Path) -> None:
    """
    Nobody else could be told.
    """

    async def work(desk: Desk) -> None:
        with pair(desk) as (process, _):
            desk.begin(process)
            beside = await desk.beside(State.RECORDING)
            assert desk.recordings.stop(None, beside, Reason.STOPPED_BY_USER)
            record = await desk.given(beside)

        assert ("stopped_by_user", "stopped") == (record.reason, record.incomplete)

    at_desk(tmp_path, work, tools="torch")


def test_a_process_that_is_detached_from_is_recorded_no_more(tmp_path: Path) -> None:
    """
    What is recorded of it now ends and is kept; the registered one's window goes on, and its next one is alone.
    """

    async def work(desk: Desk) -> None:
        with pair(desk) as (process, other):
            window = desk.begin(process, 8)
            beside = await desk.beside(State.RECORDING)
            assert other.pid == desk.attachments.detach(other.pid).pid
            record = await desk.given(beside)
            assert State.RECORDING == desk.ledger.rows[window.window].state
            desk.end(process, window)
            desk.begin(process, 9)

        assert ("stopped_by_user", "stopped") == (record.reason, record.incomplete)
        assert [8] == [row.step for row in desk.ledger.rows.values() if row.beside]
        assert [] == Companions(desk.folder / "attached.json").all()

    at_desk(tmp_path, work, tools="torch")


def test_detaching_before_the_tool_records_ends_the_window_with_that_reason(tmp_path: Path) -> None:
    """
    Not as a failure: somebody wanted it. The process can be attached to again.
    """

    async def work(desk: Desk) -> None:
        with pair(desk) as (process, other):
            desk.begin(process)
            await desk.beside(State.OPENING)
            desk.attachments.detach(other.pid)
            (ended,) = [row for row in desk.ledger.rows.values() if row.beside]
            desk.attachments.attach(desk.companion(other.pid), known=False)

            assert [desk.companion(other.pid)] == desk.companions.all()
        assert (State.ABORTED, Reason.STOPPED_BY_USER) == (ended.state, ended.reason)

    at_desk(tmp_path, work, StandIn("signal.sigwait([signal.SIGTERM])"), tools="torch")


def test_no_disk_no_recording_of_a_process_beside(tmp_path: Path) -> None:
    """
    The budget is looked at for each window.
    """

    async def work(desk: Desk) -> None:
        with pair(desk) as (process, _):
            window = desk.open(process)
            desk.rig.disk = 0
            desk.recordings.started(process, started(window.window))
            denied = await desk.beside(State.DENIED)

        assert Reason.BUDGET_DISK == denied.reason

    at_desk(tmp_path, work, tools="torch")


def test_who_may_not_be_attached_to_is_refused_with_the_reason(tmp_path: Path) -> None:
    """
    Before anything is kept.
    """

    async def work(desk: Desk) -> None:
        with somebody() as other, somebody() as third:
            companion = desk.companion(other.pid)
            with pytest.raises(AttachError, match="is registered itself"):
                desk.attachments.attach(companion, known=True)
            assert [] == desk.companions.all()
            desk.attachments.attach(companion, known=False)
            desk.attachments.attach(companion, known=False)
            with pytest.raises(AttachError, match=f"py-spy records pid {other.pid} along with trainer-0 already"):
                desk.attachments.attach(desk.companion(third.pid), known=False)
            stale = desk.companion(third.pid)
            third.kill()
            third.wait()
            with pytest.raises(AttachError, match=f"pid {third.pid}: there is no such process"):
                desk.attachments.attach(stale, known=False)

            assert [companion] == Companions(desk.folder / "attached.json").all()

    at_desk(tmp_path, work, tools="torch")
