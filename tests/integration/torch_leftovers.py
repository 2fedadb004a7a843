"""
Programs in which something of an earlier session of ``torch.profiler`` is left, ours or theirs; one per function.

Run as ``torch_foreign`` is.
"""

import gc
import os

import torch

from stepscope import wire
from stepscope.agent import Agent
from stepscope.seam import Identity
from tests.integration.torch_rig import Rig, run, settings, train
from tests.unit.stepscope.fake_sidecar import until


def forked_child_registers(rig: Rig, level: str) -> None:
    """
    A child that was forked inside a window and registers itself is told why it cannot record; its parent goes on.
    """
    assert rig.open()
    child = os.fork()
    if child == 0:
        agent = Agent.start(settings(rig.fake.folder, rig.fake), Identity(role="rollouter"))
        opened = agent.windows.open(step=1, param_version=0)
        said = agent.windows.outcome()["reason"]
        agent.close(2.0)
        os._exit(0 if (opened, said) == (False, "forked_child") else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    train()
    rig.close()

    assert 0 == code
    assert "forked_child" == rig.fake.wait(wire.Missed)[0].reason
    assert rig.recording(rig.fake.wait(wire.Closed)[0])


def warmed_inside_and_dropped(rig: Rig, level: str) -> None:
    """
    Theirs becomes warm within our window and is never begun: that window is given up, those after it record.
    """
    gc.disable()
    assert rig.open()
    profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=9, active=1))
    profiler.start()
    train()
    del profiler
    rig.close()
    assert "foreign_profiler" == rig.fake.wait(wire.Ended)[0].reason
    train()
    for _ in range(3):
        assert rig.open(), rig.windows.outcome()
        with rig.span():
            train()
        rig.close()
    until(lambda: len(rig.fake.all(wire.Closed)) == 3)
    assert all(rig.recording(closed) for closed in rig.fake.all(wire.Closed))


if __name__ == "__main__":
    run(globals())
