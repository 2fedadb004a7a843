"""
Programs with a ``torch.profiler`` of their own that follows a schedule, beside windows of ours; one per function.

A scheduled profiler is made ready a step before it begins, and no flag of torch tells of it. A window in between took
its state away, and its beginning then killed the process. Run as ``torch_foreign`` is.
"""

import gc

import torch

from stepscope import wire
from tests.integration.torch_rig import Rig, run, train


def _theirs() -> torch.profiler.profile:
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2),
    )


def scheduled_between(rig: Rig, level: str) -> None:
    """
    Their profiler moves on between our windows: while it is warm or on ours are denied, else they record.
    """
    opened = []
    with _theirs() as profiler:
        for _ in range(6):
            opened.append(rig.open())
            with rig.span():
                train()
            rig.close()
            profiler.step()

    assert [True, False, False, True, False, False] == opened
    assert profiler.events()
    assert 2 == len(rig.fake.wait(wire.Closed, 2))
    assert {"foreign_profiler"} == {item.reason for item in rig.fake.wait(wire.Missed, 4)}


def scheduled_inside(rig: Rig, level: str) -> None:
    """
    It becomes warm within our window: that one is given up, theirs is untouched, and ours record again after it.
    """
    with rig.training(), _theirs() as profiler:
        for _ in range(6):
            rig.open()
            with rig.span("outer"):
                train()
                profiler.step()
                with rig.span("inner"):
                    train()
            rig.close()
            train()

    assert profiler.events()
    assert {"foreign_profiler"} == {item.reason for item in rig.fake.wait(wire.Ended, 2)}
    assert rig.open()
    train()
    rig.close()
    assert rig.recording(rig.fake.wait(wire.Closed)[0])


def made_ready_inside(rig: Rig, level: str) -> None:
    """
    Ours of all threads has ended before theirs is made ready, which would end it at any moment; ours of one thread sees
    no other, and is left alone.
    """
    with _theirs() as profiler:
        assert rig.open()
        train()
        profiler.step()
        on = bool(torch.autograd.profiler._is_profiler_enabled)
        rig.close()

    assert on is (level == "spans")
    assert {"foreign_profiler"} == {item.reason for item in rig.fake.wait(wire.Ended)}
    assert rig.open()
    rig.close()


def scheduled_and_dropped(rig: Rig, level: str) -> None:
    """
    One that was made ready and is never begun stands in the way only as long as it exists.
    """
    profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=9, active=1))
    profiler.start()
    assert not rig.open()
    del profiler
    gc.collect()

    assert rig.open()
    train()
    rig.close()
    assert rig.recording(rig.fake.wait(wire.Closed)[0])


if __name__ == "__main__":
    run(globals())
