"""
Orders to record a process along with another: what they have to say, and who is refused.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from stepscope import ids
from stepscope_sidecar.api import Sources, create_app
from stepscope_sidecar.attach.attachments import Attachments
from stepscope_sidecar.attach.companions import NAME, Companions
from stepscope_sidecar.attach.orders import Orders
from stepscope_sidecar.errors import AttachError

from .attaching import StandIn, somebody
from .calling import Caller, FakeController
from .rig import Rig

PID = 4194304
"""Above the kernel's largest: nobody has it."""


def orders(rig: Rig, tool: StandIn | None = None) -> Orders:
    """
    Orders for one tool, a stand-in for py-spy.
    """
    attachments = Attachments(
        tools={"py-spy": tool or StandIn()},
        companions=Companions(rig.settings.directory / NAME),
        directory=rig.settings.directory,
        unix_ns=lambda: 1,
        disk_left=lambda: 1,
        submit=lambda window, record: None,
    )
    attachments.serve(rig.controller.recordings)
    return Orders(rig.controller, attachments)


def test_an_order_names_a_process_and_whose_windows_it_is_recorded_in(tmp_path: Path) -> None:
    """
    It is answered with what holds now, and shown.
    """
    rig = Rig(tmp_path)
    rig.register()
    with somebody() as other:
        taken = orders(rig)
        start = ids.process_start(other.pid)
        answer = taken.attach({"pid": other.pid, "process_start": start, "with": "trainer-0"})

        shown = {"pid": other.pid, "with": "trainer-0", "tool": "py-spy"}
        assert {**shown, "selection": "5,8-9", "stopped": False, "warnings": []} == answer
        assert [{"pid": other.pid, "with": "trainer-0", "tool": "py-spy"}] == taken.attached()
        assert taken.attached() == orders(rig).attached(), "a restarted sidecar goes on with it"
    assert [] == taken.attached()


def test_an_order_ends_another(tmp_path: Path) -> None:
    """
    Once; and where there is none to end, it says which there are.
    """
    rig = Rig(tmp_path)
    rig.register()
    taken = orders(rig)
    with somebody() as other:
        taken.order({"pid": other.pid, "with": "trainer-0"})
        with pytest.raises(AttachError, match=rf"pid {PID} is not attached to; {other.pid} \(with trainer-0\) is"):
            taken.order({"pid": PID, "detach": True})

        ended = taken.order({"pid": other.pid, "detach": True})
        assert {"pid": other.pid, "with": "trainer-0", "tool": "py-spy"} == ended
        assert [] == taken.attached() == orders(rig).attached()
        with pytest.raises(AttachError, match=f"pid {other.pid} is not attached to; none is"):
            taken.order({"pid": other.pid, "detach": True})
        with pytest.raises(AttachError, match="a pid is a number from 1"):
            taken.order({"detach": True})


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ({}, "a pid is a number from 1"),
        ({"pid": "7", "with": "trainer-0"}, "a pid is a number from 1"),
        ({"pid": True, "with": "trainer-0"}, "a pid is a number from 1"),
        ({"pid": PID}, "with=None is no ROLE-RANK; for example trainer-0"),
        ({"pid": PID, "with": "trainer"}, "with='trainer' is no ROLE-RANK"),
        ({"pid": PID, "with": "trainer-x"}, "is no ROLE-RANK"),
        ({"pid": PID, "with": "critic-0"}, "no critic-0 is registered with this sidecar; there is trainer-0"),
        ({"pid": PID, "with": "trainer-1"}, "no trainer-1 is registered"),
        ({"pid": PID, "with": "trainer-0", "tool": "torch"}, "torch records trainer itself"),
        ({"pid": PID, "with": "trainer-0", "tool": "vllm"}, "'vllm' records no process from outside; py-spy do"),
        ({"pid": PID, "with": "trainer-0"}, f"pid {PID}: there is no such process"),
        ({"pid": 1, "process_start": "now", "with": "trainer-0"}, "process_start='now' is no number"),
        ({"pid": 1, "process_start": 1, "with": "trainer-0"}, "the pid was used again"),
        ({"pid": 100, "with": "trainer-0"}, "pid 100"),
    ],
)
def test_an_order_that_cannot_be_carried_out_says_why(tmp_path: Path, order: Mapping[str, object], why: str) -> None:
    """
    With what is wrong, and what there is.
    """
    rig = Rig(tmp_path)
    rig.register()

    with pytest.raises(AttachError) as raised:
        orders(rig).attach(order)
    assert why in str(raised.value)


def test_an_order_along_with_one_that_has_no_steps_is_refused(tmp_path: Path) -> None:
    """
    A driver registers only: no window ever opens in it. Those that have steps are named.
    """
    rig = Rig(tmp_path)
    rig.register(role="driver", register_only=True)
    rig.register(101, role="critic", rank=3)

    with pytest.raises(AttachError, match=r"driver-0 has no steps \(register_only\).*there is critic-3$"):
        orders(rig).attach({"pid": os.getpid(), "with": "driver-0"})


def test_an_order_along_with_a_rank_that_is_not_selected_is_taken_with_a_warning(tmp_path: Path) -> None:
    """
    That says why nothing would be recorded, and what to do.
    """
    rig = Rig(tmp_path, STEPSCOPE_RANKS="trainer=0-1")
    rig.register(rank=2)
    with somebody() as other:
        answer = orders(rig).attach({"pid": other.pid, "with": "trainer-2"})

    (warning,) = answer["warnings"] if isinstance(answer["warnings"], list) else []
    assert "rank 2 of trainer is not selected (STEPSCOPE_RANKS=trainer=0-1): no window opens in it" in warning
    assert "trainer=2 in that setting" in warning


def test_an_order_while_all_recording_is_stopped_says_so(tmp_path: Path) -> None:
    """
    It is taken: the steps that are named next take the stop back.
    """
    rig = Rig(tmp_path)
    rig.register()
    rig.controller.stop("api")
    with somebody() as other:
        answer = orders(rig).attach({"pid": other.pid, "with": "trainer-0"})

    assert answer["stopped"] is True


def test_a_tool_that_cannot_be_used_here_or_on_that_process_says_why(tmp_path: Path) -> None:
    """
    Before anything is kept.
    """
    rig = Rig(tmp_path)
    rig.register()
    order = {"pid": os.getpid(), "with": "trainer-0"}
    for tool, why in (
        (StandIn(missing="py-spy is not installed"), "py-spy: py-spy is not installed"),
        (StandIn(in_the_way="pid 7: it belongs to user 3"), "py-spy cannot record pid 7: it belongs to user 3"),
    ):
        with pytest.raises(AttachError, match=why):
            orders(rig, tool).attach(order)

    assert not (tmp_path / NAME).exists()


def test_a_registered_process_is_not_attached_to(tmp_path: Path) -> None:
    """
    It has a profiler of its own.
    """
    rig = Rig(tmp_path)
    rig.register(os.getpid(), process_start=ids.process_start())

    with pytest.raises(AttachError, match="is registered itself"):
        orders(rig).attach({"pid": os.getpid(), "with": "trainer-0"})


def test_the_api_takes_such_orders(tmp_path: Path) -> None:
    """
    And answers one that is refused as a mistake of the caller.
    """
    rig = Rig(tmp_path)
    rig.register()
    sources = Sources(
        live=FakeController(),
        store=tmp_path / "none",
        directory=tmp_path,
        metrics=lambda accept: (b"", ""),
        attach=orders(rig).order,
    )
    caller = Caller(create_app(sources), host="127.0.0.1")
    with somebody() as other:
        taken = caller.post("/api/attach", json={"pid": other.pid, "with": "trainer-0"})
        refused = caller.post("/api/attach", json={"pid": other.pid, "with": "critic-0"})
        ended = caller.post("/api/attach", json={"pid": other.pid, "detach": True})

    assert (200, other.pid) == (taken.status_code, taken.json()["pid"])
    assert 400 == refused.status_code
    assert 200 == ended.status_code
    assert "no critic-0 is registered" in refused.json()["error"]
