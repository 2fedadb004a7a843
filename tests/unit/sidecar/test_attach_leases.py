"""
A tool that records a device from outside takes it as a profiler inside does: one at a time, across processes.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope import devices, wire
from stepscope.names import Reason, State
from stepscope_sidecar.attach import target
from stepscope_sidecar.attach.companions import NAME, Companions
from stepscope_sidecar.processes import Process

from .attaching import Desk, StandIn, at_desk, somebody
from .rig import FakeLink, Rig, closed, register, started
from .test_attach_orders import orders

STOPS_WHEN_LET = """
print("recording", flush=True)
signal.sigwait([signal.SIGINT])
open("recording.speedscope.json", "w").write("{}")
open("../../../../let").read()
"""
"""One that takes its time to stop: until somebody opens the pipe that it reads."""


def rollouter(*device_ids: str) -> tuple[Process, FakeLink]:
    """
    A registered process on those devices.
    """
    message = register(101, role="rollouter", device_ids=list(device_ids))
    process, link = Process.of(message, peer=101, unix_ns=1), FakeLink()
    process.link = link
    return process, link


def answered(desk: Desk, process: Process, link: FakeLink, step: int) -> str:
    """
    What ``process`` gets that asks for a window of ``step``: the reason of a denial, "" if it is granted.
    """
    desk.recordings.open(process, wire.Open(id=7, step=step, param_version=step - 1), desk.plan)
    answer = link.last()
    return answer.reason if isinstance(answer, wire.Deny) else ""


def test_a_process_beside_is_not_recorded_on_a_device_that_another_window_uses(tmp_path: Path) -> None:
    """
    Its window is denied, and says which window that is; on another device it is not.
    """

    async def work(desk: Desk) -> None:
        with somebody() as trainer, somebody() as other:
            desk.attachments.attach(desk.companion(other.pid, "npu:1"), known=False)
            holder, link = rollouter("npu:1")
            assert "" == answered(desk, holder, link, 8)
            process = desk.process(trainer.pid)
            first = desk.begin(process, 8)
            denied = await desk.beside(State.DENIED)
            grant = link.last()
            assert isinstance(grant, wire.Grant)
            desk.recordings.started(holder, started(grant.window))
            desk.recordings.closed(holder, closed(grant.window))
            desk.end(process, first)
            desk.begin(process, 9)
            free = await desk.beside(State.RECORDING)

        assert (Reason.BUSY_DEVICE, f"npu:1 is taken by window {grant.window}") == (denied.reason, denied.detail)
        assert (9, ("npu:1",)) == (free.step, free.devices)

    at_desk(tmp_path, work, StandIn(on_device=True), tools="torch")


def test_no_window_opens_on_a_device_on_which_a_process_beside_is_recorded(tmp_path: Path) -> None:
    """
    Before its tool has ended: that its window is over does not mean that the device is free.
    """
    os.mkfifo(tmp_path / "let")

    async def work(desk: Desk) -> None:
        with somebody() as trainer, somebody() as other:
            desk.attachments.attach(desk.companion(other.pid, "npu:1"), known=False)
            process = desk.process(trainer.pid)
            window = desk.begin(process, 5)
            beside = await desk.beside(State.RECORDING)
            second, link = rollouter("npu:1")
            told = answered(desk, second, link, 5)
            desk.end(process, window)
            over = desk.ledger.rows[beside.window].state
            stopping = answered(desk, second, link, 8)
            # Opening it waits for the tool to open its end.
            await asyncio.to_thread((tmp_path / "let").write_text, "")
            await desk.given(beside)
            ended = answered(desk, second, link, 9)

        assert (Reason.BUSY_DEVICE, Reason.BUSY_DEVICE, "") == (told, stopping, ended)
        assert State.FINALISING == over

    at_desk(tmp_path, work, StandIn(STOPS_WHEN_LET, on_device=True), tools="torch")


def test_the_device_of_a_process_that_is_not_registered_is_what_its_environment_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Or what the order says; only a tool that records devices takes it.
    """
    monkeypatch.setattr(devices, "VISIBLE", (("npu", "ASCEND_RT_VISIBLE_DEVICES", ("/",)),))
    rig = Rig(tmp_path)
    rig.register(device_ids=["npu:3", "rank-7"])
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"],
        env={"ASCEND_RT_VISIBLE_DEVICES": "3"},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        with process.stdout:
            process.stdout.readline()
        shown = target.devices(process.pid)
        order = {"pid": process.pid, "with": "trainer-0"}
        answers, leased = [], []
        for tool, told in (
            (StandIn(), []),
            (StandIn(on_device=True), []),
            (StandIn(on_device=True), ["rank-7"]),
            (StandIn(on_device=True), ["rank-8"]),
        ):
            taken = orders(rig, tool)
            answers.append(taken.order({**order, "devices": told})["warnings"])
            leased += [companion.devices for companion in Companions(tmp_path / NAME).all()]
            taken.order({"pid": process.pid, "detach": True})
    finally:
        process.kill()
        process.wait()

    assert ("npu:3",) == shown
    assert () == target.devices(process.pid)
    assert [(), ("npu:3",), ("rank-7",), ("rank-8",)] == leased
    assert [0, 1, 1, 0] == [len(warnings) for warnings in answers if isinstance(warnings, list)]
    assert "trainer-0 works on npu:3 too" in str(answers[1])
