"""
Programs that would kill the interpreter if ``torch.profiler`` were driven carelessly; one per function.

Run as ``python -m tests.integration.torch_scenarios NAME LEVEL``: the exit code is the result. The sidecar is a
stand-in that grants everything; agent, windows, bridge and profiler are the real ones.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from stepscope import wire
from stepscope.agent import Agent
from stepscope.seam import Identity
from stepscope.selection import Selection
from stepscope.settings import Settings
from tests.unit.stepscope.fake_sidecar import PATIENCE, FakeSidecar, until

WINDOWS = int(os.environ.get("STEPSCOPE_TEST_WINDOWS", "12"))
"""Windows of a stress run; careless driving dies within 1 to 11."""

TRACE, SPAN = "1" * 32, "2" * 16


class Rig:
    """
    A real agent against the stand-in, and a process that trains.
    """

    def __init__(self, folder: Path, fake: FakeSidecar) -> None:
        self.fake = fake
        settings = Settings(
            run="r", attempt="a", directory=folder, socket=fake.path, selection=Selection.parse("every:1")
        )
        self.agent = Agent.start(settings, Identity(role="trainer"))
        self.windows = self.agent.windows
        self.step = 0
        self.ids = iter(range(1, 1 << 30))

    def open(self) -> bool:
        """
        Enter the next step.
        """
        self.step += 1
        opened = self.windows.open(step=self.step, param_version=self.step - 1)
        self.windows.started(trace_id=TRACE, span_id=SPAN)
        return opened

    def close(self) -> None:
        """
        The boundary of the step.
        """
        self.windows.close(version=self.step)

    @contextmanager
    def span(self, name: str = "train") -> Iterator[int]:
        """
        A span, told as :mod:`stepscope.provider` tells it.
        """
        number = next(self.ids)
        told = self.windows.recording
        if told:
            self.windows.span_started(number, name)
        try:
            yield number
        finally:
            if told or self.windows.recording:
                self.windows.span_ended(number)

    def recording(self, closed: wire.Closed) -> list[dict[str, object]]:
        """
        The events of a raw recording, which must be JSON.
        """
        number = closed.window.removeprefix("w")
        text = (self.fake.folder / f"window-{number}" / closed.artifact).read_text()
        events: list[dict[str, object]] = json.loads(text)["traceEvents"]
        return events

    @contextmanager
    def training(self, count: int = 3) -> Iterator[None]:
        """
        Other threads train, with spans, all the while.
        """
        over = threading.Event()

        def loop() -> None:
            while not over.is_set():
                with self.span("other"):
                    train()

        threads = [threading.Thread(target=loop) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


def train() -> None:
    """
    A forward, a backward and a step of an optimizer.
    """
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(8, 16)).square().sum().backward()
    optimizer.step()


def in_thread(work: Callable[[], object]) -> None:
    """
    Do ``work`` on another thread and wait for it.
    """
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def names(events: list[dict[str, object]]) -> set[str]:
    """
    The names of the spans on a timeline, without their ids.
    """
    return {str(event["name"]).split(" #")[0] for event in events if event.get("cat") == "user_annotation"}


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
    if level != "ops":
        assert [False, True] == [item.other_thread for item in rig.fake.all(wire.Open)]


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


def _foreign_inside(rig: Rig, *, elsewhere: bool, finished: bool) -> None:
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
    if rig.open():
        train()
        rig.close()
        assert rig.recording(rig.fake.wait(wire.Closed)[0])


def foreign_inside_same_finished(rig: Rig, level: str) -> None:
    """
    Somebody starts and stops a profiler within our window.
    """
    _foreign_inside(rig, elsewhere=False, finished=True)


def foreign_inside_same_running(rig: Rig, level: str) -> None:
    """
    Somebody's profiler, started within our window, runs on beyond it.
    """
    _foreign_inside(rig, elsewhere=False, finished=False)


def foreign_inside_other_finished(rig: Rig, level: str) -> None:
    """
    The same from another thread, over when ours ends.
    """
    _foreign_inside(rig, elsewhere=True, finished=True)


def foreign_inside_other_running(rig: Rig, level: str) -> None:
    """
    The same from another thread, running on.
    """
    _foreign_inside(rig, elsewhere=True, finished=False)


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


def main(scenario: Callable[[Rig, str], None], level: str) -> None:
    """
    Run ``scenario`` at ``level`` and leave as a program does.
    """
    folder, owner = Path(tempfile.mkdtemp()), os.getpid()
    fake = FakeSidecar(folder / "s", folder, level=level)
    fake.__enter__()
    rig = Rig(folder, fake)
    try:
        scenario(rig, level)
    finally:
        # A forked child unwinds through here too, and what is here is its parent's.
        if os.getpid() == owner:
            rig.agent.close(2.0)
            fake.__exit__(None, None, None)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(globals()[sys.argv[1]], sys.argv[2])
