"""
Programs that would kill the interpreter if ``torch.profiler`` were driven carelessly; one per function.

Run as ``python -m tests.integration.torch_scenarios NAME LEVEL``: the exit code is the result. The sidecar is a
stand-in that grants everything; agent, windows, bridge and profiler are the real ones.
"""

import os
import sys
import threading
from collections.abc import Callable

import torch

from stepscope import wire
from tests.integration.torch_rig import WINDOWS, Rig, in_thread, names, run, train
from tests.unit.stepscope.fake_sidecar import until


def boundary_elsewhere(rig: Rig, level: str) -> None:
    """
    The boundary comes on another thread than the opening.
    """
    assert rig.open()
    with rig.span():
        train()
    in_thread(rig.close)
    if level != "ops":
        assert rig.windows.recording
        with rig.span("next"):
            train()
        closed = rig.fake.wait(wire.Closed)[0]
        assert ("wrong_thread", "closed_late") == (closed.reason, closed.incomplete)
        assert rig.open()
        started = rig.fake.wait(wire.Started, 2)[1]
        assert ("ops", level) == (started.level, started.level_fallback)
        in_thread(rig.close)
    assert "train" in names(rig.recording(rig.fake.wait(wire.Closed)[0]))


def opener_gone(rig: Rig, level: str) -> None:
    """
    The thread that opened a window has ended; the next step opens, and one is left so at exit.
    """
    in_thread(rig.open)
    assert rig.open() == (level != "ops")
    if level != "ops":
        assert "wrong_thread" == rig.fake.wait(wire.Ended)[0].reason
        train()
    rig.close()
    in_thread(rig.open)


def nested(rig: Rig, level: str) -> None:
    """
    A step is entered while a window records: no second one opens, on any thread.
    """
    assert rig.open()
    assert not rig.open()
    in_thread(rig.open)
    assert ["busy_process"] * 2 == [item.reason for item in rig.fake.wait(wire.Missed, 2)]
    train()
    rig.close()
    assert rig.recording(rig.fake.wait(wire.Closed)[0])


def _fork(leave: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        leave()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def forked(rig: Rig, level: str) -> None:
    """
    Children made inside and after a window leave in both ways, with the status they chose; they record nothing.
    """

    def by_exit() -> None:
        assert not rig.windows.recording
        assert not rig.windows.open(step=99, param_version=98)
        with rig.span("child"):
            train()
        rig.close()
        sys.exit(7)

    assert rig.open()
    codes = [_fork(by_exit), _fork(lambda: os._exit(8))]
    train()
    rig.close()
    codes += [_fork(by_exit), _fork(lambda: os._exit(8))]
    assert [7, 8, 7, 8] == codes
    assert rig.recording(rig.fake.wait(wire.Closed)[0])
    assert 1 == len(rig.fake.all(wire.Open))


def stop_while_training(rig: Rig, level: str) -> None:
    """
    Windows open and close on the main thread while others train.
    """
    with rig.training():
        for _ in range(WINDOWS):
            assert rig.open()
            with rig.span():
                train()
            rig.close()
    for closed in rig.fake.wait(wire.Closed, WINDOWS):
        assert "train" in names(rig.recording(closed))


def stop_by_sidecar(rig: Rig, level: str) -> None:
    """
    The sidecar stops each window while all threads train; the boundary that comes later does nothing.
    """
    with rig.training():
        for number in range(1, WINDOWS + 1):
            assert rig.open()
            rig.fake.say(wire.Stop(window=f"w{number}", reason="stopped_by_user"))
            with rig.span("process"):
                while rig.windows.recording:
                    with rig.span():
                        train()
            rig.close()
            rig.fake.wait(wire.Closed, number)
            until(lambda: not rig.windows.listed(), what="the end of the closing")
    reasons = {(item.reason, item.incomplete) for item in rig.fake.wait(wire.Closed, WINDOWS)}
    assert {("stopped_by_user", "stopped")} == reasons
    assert WINDOWS == len(rig.fake.all(wire.Closed))


def span_across_windows(rig: Rig, level: str) -> None:
    """
    One span is open from before the first window until after the second.
    """
    for _ in range(WINDOWS):
        assert rig.open()
        with rig.span("long"):
            train()
            rig.close()
            assert rig.open()
            train()
        rig.close()
    closed = rig.fake.wait(wire.Closed, 2 * WINDOWS)
    assert [0] == [span.end_unix_ns for span in closed[0].continued if span.name == "long"]


def spans_across_close(rig: Rig, level: str) -> None:
    """
    Other threads open and close spans all across the closing of windows.
    """
    over = threading.Event()

    def spans() -> None:
        while not over.is_set():
            with rig.span("outer"), rig.span("inner"):
                torch.ones(1)

    threads = [threading.Thread(target=spans) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(WINDOWS):
        assert rig.open()
        train()
        rig.close()
    over.set()
    for thread in threads:
        thread.join()
    for closed in rig.fake.wait(wire.Closed, WINDOWS):
        assert bool(closed.mirrored) == bool(names(rig.recording(closed)) & {"inner", "outer"})


def annotations_across_windows(rig: Rig, level: str) -> None:
    """
    User code's own annotations, on this thread and on others, are open across windows that follow each other.
    """

    def work() -> None:
        while not over.is_set():
            with torch.profiler.record_function("theirs"):
                for _ in range(20):
                    train()

    over = threading.Event()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(WINDOWS):
        assert rig.open()
        with torch.profiler.record_function("ours"):
            train()
            rig.close()
            assert rig.open()
            train()
        rig.close()
    over.set()
    for thread in threads:
        thread.join()
    assert "ours" in names(rig.recording(rig.fake.wait(wire.Closed, 2 * WINDOWS)[0]))


def closed_at_exit(rig: Rig, level: str) -> None:
    """
    The process leaves with a window open and a span in it.
    """
    assert rig.open()
    with rig.span():
        rig.agent.close()
    until(lambda: bool(rig.fake.all(wire.Closed)), what="the close")
    assert "process_exit" == rig.fake.all(wire.Closed)[0].reason


if __name__ == "__main__":
    run(globals())
