"""
What a person is told who orders that a process is recorded from outside, and how that is ended.
"""

import os
import subprocess
import sys

import pytest

from .attached import (
    begin,
    command,
    end,
    go_on,
    hear,
    program,
    recorded_beside,
    recording_of,
    row,
    status,
    tools_of,
)
from .jobs import eventually
from .place import Place

pytestmark = pytest.mark.usefixtures("step_two")


def test_a_process_that_is_not_there_or_not_ours_is_refused_at_the_command(place: Place) -> None:
    """
    Each with what is wrong and what there is instead.
    """
    with place.sidecar(), program(place, "3") as trainer:
        hear(trainer, "registered")
        me = str(os.getpid())
        gone = command(place, "profile", "--attach", "4194304", "--with", "trainer-0")
        nobody = command(place, "profile", "--attach", me, "--with", "critic-1")
        unclear = command(place, "profile", "--attach", me, "--with", "trainer")
        registered = command(place, "profile", "--attach", str(trainer.pid), "--with", "trainer-0")
        alone = command(place, "profile", "--attach", me)

        assert (2, "stepscope: no process 4194304 on this machine\n") == (gone.returncode, gone.stderr)
        assert "no critic-1 is registered with this sidecar; there is trainer-0" in nobody.stderr
        assert "with='trainer' is no ROLE-RANK" in unclear.stderr
        assert f"pid {trainer.pid} is registered itself" in registered.stderr
        assert "--attach PID and --with ROLE-RANK go together" in alone.stderr


def test_an_order_that_records_nothing_as_things_are_is_taken_with_a_warning(place: Place) -> None:
    """
    Where the rank is not selected, or all recording is stopped; steps that are named with it take a stop back.
    """
    place.env |= {"STEPSCOPE_RANKS": "trainer=1"}
    with place.sidecar(), program(place, "3") as trainer, program(place, "busy") as other:
        hear(trainer, "registered")
        hear(other, "busy")
        place.post("/api/stop")
        order = ("profile", "--attach", str(other.pid), "--with", "trainer-0")
        stopped, named = command(place, *order), command(place, *order, "--steps", "2")

        assert [0, 0] == [stopped.returncode, named.returncode]
        assert "warning: rank 0 of trainer is not selected (STEPSCOPE_RANKS=trainer=1)" in stopped.stderr
        assert "warning: all recording is stopped; `stepscope profile --steps ...` takes that back" in stopped.stderr
        assert "is not selected" in named.stderr
        assert "is stopped" not in named.stderr


def test_a_driver_that_only_registers_opens_no_windows_to_be_recorded_in(place: Place) -> None:
    """
    The command says so, with who does.
    """
    driver = "import stepscope; stepscope.init(role='driver', register_only=True); print('registered', flush=True)"
    started = [sys.executable, "-c", f"{driver}; input()"]
    with (
        place.sidecar(),
        subprocess.Popen(started, env=place.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        hear(process, "registered")
        done = command(place, "profile", "--attach", str(os.getpid()), "--with", "driver-0")
        go_on(process)

        assert 2 == done.returncode
        assert "driver-0 has no steps (register_only)" in done.stderr


def test_a_stop_ends_the_tool_too(place: Place) -> None:
    """
    ``stepscope stop`` closes all windows; what was recorded until then is kept.
    """
    with place.sidecar() as sidecar, program(place, "3") as trainer, program(place, "busy") as other:
        recorded_beside(place, sidecar, trainer, other)
        place.post("/api/stop")
        eventually(lambda: not tools_of(sidecar))
        beside = row(place, "py-spy", "ready", "failed", "aborted")

        assert ("ready", "stopped_by_user", "stopped") == (beside.state, beside.reason, beside.incomplete_reason)
        end(trainer, 2)


def test_a_process_can_be_detached_from(place: Place) -> None:
    """
    By the command, in the midst of its window: it is kept, and there are no more.
    """
    place.env |= {"STEPSCOPE_STEPS": "2-3"}
    with place.sidecar() as sidecar, program(place, "3") as trainer, program(place, "busy") as other:
        recorded_beside(place, sidecar, trainer, other)
        done = command(place, "profile", "--detach", str(other.pid))
        eventually(lambda: not tools_of(sidecar))
        beside = row(place, "py-spy", "ready", "failed", "aborted")
        end(trainer, 2)
        begin(trainer, 3)
        recording_of(place, 3)
        again = command(place, "profile", "--detach", str(other.pid))
        end(trainer, 3)

        assert (0, f"pid {other.pid} is recorded by py-spy no more\n") == (done.returncode, done.stdout)
        assert ("ready", "stopped_by_user", "stopped") == (beside.state, beside.reason, beside.incomplete_reason)
        assert 1 == sum(window.tool == "py-spy" for window in place.windows())
        assert (2, f"stepscope: pid {other.pid} is not attached to; none is\n") == (again.returncode, again.stderr)
        assert [] == status(place)["attached"]
