"""
Programs in which somebody else's profiler meets ours, before a window or inside it; one per function.

Run as ``python -m tests.integration.torch_foreign NAME LEVEL``: the exit code is the result.
"""

import json
import threading

import torch

from stepscope import wire
from tests.integration.torch_rig import Rig, run, train
from tests.unit.stepscope.fake_sidecar import PATIENCE


def foreign_before(rig: Rig, level: str) -> None:
    """
    Somebody profiles already, on this thread or on another: our window is denied, theirs is untouched.
    """

    def theirs() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            ready.set()
            assert go.wait(PATIENCE)
            train()
        profiler.export_chrome_trace(str(rig.fake.folder / "theirs.json"))

    ready, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=theirs)
    thread.start()
    assert ready.wait(PATIENCE)
    assert not rig.open()
    go.set()
    thread.join()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert not rig.open()
        train()
        rig.close()
    assert profiler.events()
    assert {"foreign_profiler"} == {item.reason for item in rig.fake.wait(wire.Missed, 2)}
    assert rig.open()
    rig.close()
    rig.fake.wait(wire.Closed)


def _foreign_inside(rig: Rig, level: str, *, elsewhere: bool, finished: bool) -> None:
    go, ready = threading.Event(), threading.Event()
    path = rig.fake.folder / "theirs.json"
    assert rig.open()

    def theirs() -> None:
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        profiler.start()
        train()
        if not finished:
            ready.set()
            go.wait()
        profiler.stop()
        profiler.export_chrome_trace(str(path))
        ready.set()

    with rig.span("outer"):
        thread = threading.Thread(target=theirs)
        if elsewhere:
            thread.start()
            ready.wait()
        else:
            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            profiler.start()
            with rig.span("inner"):
                train()
            if finished:
                profiler.stop()
    with rig.span("later"):
        train()
    rig.close()
    if elsewhere:
        go.set()
        thread.join()
    else:
        if not finished:
            profiler.stop()
        profiler.export_chrome_trace(str(path))
    assert json.loads(path.read_text())["traceEvents"]
    assert "foreign_profiler" == rig.fake.wait(wire.Ended)[0].reason
    train()
    # A profiler of another thread leaves a thread-bound one's state on this thread for ever: docs/en/limits.md.
    taken = elsewhere and level in {"spans", "full"}
    assert rig.open() is not taken
    if not taken:
        train()
        rig.close()
        assert rig.recording(rig.fake.wait(wire.Closed)[0])


def foreign_inside_same_finished(rig: Rig, level: str) -> None:
    """
    Somebody starts and stops a profiler within our window.
    """
    _foreign_inside(rig, level, elsewhere=False, finished=True)


def foreign_inside_same_running(rig: Rig, level: str) -> None:
    """
    Somebody's profiler, started within our window, runs on beyond it.
    """
    _foreign_inside(rig, level, elsewhere=False, finished=False)


def foreign_inside_other_finished(rig: Rig, level: str) -> None:
    """
    The same from another thread, over when ours ends.
    """
    _foreign_inside(rig, level, elsewhere=True, finished=True)


def foreign_inside_other_running(rig: Rig, level: str) -> None:
    """
    The same from another thread, running on.
    """
    _foreign_inside(rig, level, elsewhere=True, finished=False)


if __name__ == "__main__":
    run(globals())
