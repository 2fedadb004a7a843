"""
Devices are leased to one window at a time, and every way in which a window ends gives them back.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope import wire
from stepscope.names import Reason
from stepscope_sidecar.processes import Process

from .rig import FakeLink, Rig, closed, reopened, started


class Leases(Rig):
    """
    Two processes on one device, and the window of the first.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.first: Process
        self.second: Process
        self.first, self.first_link = self.register(device_ids=["gpu-0", "gpu-1"])
        self.second, self.second_link = self.register(101, role="rollouter", device_ids=["gpu-1"])


def _forget(rig: Leases) -> None:
    rig.register(device_ids=["gpu-0", "gpu-1"])
    rig.now += 11.0
    rig.controller.tick()


ENDS: dict[str, Callable[[Leases, str], None]] = {
    "closed": lambda rig, name: rig.controller.handle(rig.first, closed(name)),
    "failed": lambda rig, name: rig.controller.handle(
        rig.first, wire.Ended(window=name, state="failed", reason="start_error")
    ),
    "expired": lambda rig, name: rig.controller.handle(
        rig.first, wire.Ended(window=name, state="expired", reason="grant_too_late")
    ),
    "lost": lambda rig, _: rig.controller.gone(rig.first),
    "left": lambda rig, _: rig.controller.handle(rig.first, wire.Bye()),
    "registered again without it": lambda rig, _: _forget(rig),
}


@pytest.fixture
def rig(tmp_path: Path) -> Leases:
    """
    Nothing is open yet.
    """
    return Leases(tmp_path)


def test_a_second_process_on_a_device_is_denied(rig: Leases) -> None:
    """
    Whatever else it drives; one on another device, or on none, is not.
    """
    apart, apart_link = rig.register(102, role="rollouter", rank=1, device_ids=["gpu-2"])
    none, none_link = rig.register(103, role="rollouter", rank=2)

    assert rig.open(rig.first, rig.first_link) in rig.ledger.rows
    assert Reason.BUSY_DEVICE == rig.open(rig.second, rig.second_link)
    assert rig.open(apart, apart_link) in rig.ledger.rows
    assert rig.open(none, none_link) in rig.ledger.rows


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("recording", [False, True])
def test_a_device_is_free_when_its_window_has_ended(rig: Leases, end: str, recording: bool) -> None:
    """
    By its close, by failing, with its process, or given up: the next one gets it.
    """
    name = rig.open(rig.first, rig.first_link)
    if recording:
        rig.controller.handle(rig.first, started(name))
    ENDS[end](rig, name)

    assert rig.open(rig.second, rig.second_link, 8) in rig.ledger.rows


def test_a_stop_gives_a_device_back_only_when_it_was_heeded(rig: Leases) -> None:
    """
    Until the process says that its profiler is off, it may be on.
    """
    name = rig.open(rig.first, rig.first_link)
    rig.controller.handle(rig.first, started(name))
    rig.controller.stop("api")
    rig.controller.set_selection("5,8-9", "api")
    told = rig.open(rig.second, rig.second_link, 8)
    rig.controller.handle(rig.first, closed(name, "stopped_by_user"))

    assert Reason.BUSY_DEVICE == told
    assert rig.open(rig.second, rig.second_link, 9) in rig.ledger.rows


def test_a_lease_outlives_the_sidecar(rig: Leases) -> None:
    """
    The next one knows of it, from the store or from the process.
    """
    name = rig.open(rig.first, rig.first_link)
    rig.controller.handle(rig.first, started(name))
    rig.restart()
    rig.register(device_ids=["gpu-0", "gpu-1"], open_windows=[reopened(name)])
    second, link = rig.register(101, role="rollouter", device_ids=["gpu-1"], link=FakeLink())

    assert Reason.BUSY_DEVICE == rig.open(second, link)
