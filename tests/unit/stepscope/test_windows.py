"""
The windows of a process: opening, closing exactly once, on the right thread, whatever fails.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from stepscope import recorder, wire
from stepscope.profilers import AnyProfiler, ForeignProfilerError, NoArtifactError, Registry, UnavailableError
from stepscope.windows import Windows
from tests.unit.stepscope.fake_profiler import FakeEngine, FakeProfiler
from tests.unit.stepscope.fake_sidecar import until

TRACE, SPAN = "1" * 32, "2" * 16


class Desk:
    """
    The way to a sidecar that answers ``answer``; keeps what it is told.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.caps = wire.Caps()
        self.tool = "torch"
        self.answer: Callable[[], wire.Message | None] = self.grant
        self.told: list[wire.Message] = []
        self.missed: list[str] = []
        self.asked: list[bool] = []

    def grant(self) -> wire.Message:
        """
        Yes.
        """
        number = len(self.asked)
        return wire.Grant(
            id=1,
            window=f"w{number}",
            tool=self.tool,
            level="spans",
            folder=str(self.folder / f"w{number}"),
            caps=self.caps,
        )

    def ask(self, *, step: int, param_version: int, forced: bool, other_thread: bool) -> wire.Message | None:
        """
        What the test wants.
        """
        self.asked.append(other_thread)
        return self.answer()

    def miss(self, *, step: int, param_version: int, reason: str) -> None:
        """
        Keep it.
        """
        self.missed.append(reason)

    def tell(self, message: wire.Message) -> None:
        """
        Keep it.
        """
        self.told.append(message)

    def metadata(self) -> Mapping[str, str]:
        """
        Something.
        """
        return {"stepscope.run": "r"}

    @property
    def closed(self) -> list[wire.Closed]:
        """
        The close records.
        """
        return [message for message in self.told if isinstance(message, wire.Closed)]

    @property
    def ended(self) -> list[tuple[str, str]]:
        """
        State and reason of the windows that left nothing.
        """
        return [(message.state, message.reason) for message in self.told if isinstance(message, wire.Ended)]


class Rig:
    """
    Windows with a stand-in profiler and desk.
    """

    def __init__(self, folder: Path, profiler: AnyProfiler | None = None) -> None:
        self.desk = Desk(folder)
        self.profiler = FakeProfiler()
        self.seconds = 0.0
        chosen = self.profiler if profiler is None else profiler
        if isinstance(chosen, FakeProfiler):
            self.profiler = chosen
        self.desk.tool = chosen.name
        self.windows = Windows(
            control=self.desk,
            profilers=Registry({"torch": self.profiler, chosen.name: chosen}),
            clock=lambda: 1000,
            monotonic=lambda: self.seconds,
        )

    def open(self, step: int = 5) -> bool:
        """
        Open, and begin the process's span.
        """
        opened = self.windows.open(step=step, param_version=step - 1)
        if opened:
            self.windows.started(trace_id=TRACE, span_id=SPAN)
        return opened


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """
    Windows with a profiler that any thread may stop.
    """
    return Rig(tmp_path)


@pytest.fixture
def bound(tmp_path: Path) -> Rig:
    """
    Windows with a profiler that belongs to its thread.
    """
    return Rig(tmp_path, FakeProfiler(thread_bound=True))


@pytest.fixture(autouse=True)
def no_thread_stays(rig: Rig, bound: Rig) -> Iterator[None]:
    """
    End the watchdogs.
    """
    yield
    rig.windows.end(version=0, timeout=5)
    bound.windows.end(version=0, timeout=5)


def elsewhere(work: Callable[[], object]) -> None:
    """
    Do ``work`` on another thread and wait for it.
    """
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_window_from_grant_to_record(rig: Rig) -> None:
    """
    Start, then the span, then the message; marks end before the stop; the record lies beside the file.
    """
    assert rig.open()
    rig.windows.span_started(0xA, "train")
    rig.windows.close(version=5)
    closed = rig.desk.closed[0]

    mark = "train #000000000000000a"
    assert ["start", f"enter {mark}", f"exit {mark}", "stop"] == rig.profiler.calls
    assert [wire.Started, wire.Closed] == [type(message) for message in rig.desk.told]
    assert ("w1", "boundary", 5, TRACE, SPAN, "recording.json", "") == (
        closed.window,
        closed.reason,
        closed.version_at_close,
        closed.trace_id,
        closed.span_id,
        closed.artifact,
        closed.incomplete,
    )
    assert {"open", "start", "stop", "export"} == set(closed.stall)
    assert closed == wire.load_closed((rig.desk.folder / "w1" / recorder.RECORD).read_bytes())
    assert {"stepscope.run": "r", "stepscope.step": "5", "stepscope.window": "w1"}.items() <= closed.metadata.items()
    assert closed.metadata == rig.profiler.metadata


def test_closing_twice_closes_once(rig: Rig) -> None:
    """
    The second finds nothing open.
    """
    rig.open()
    rig.windows.close(version=5)
    rig.windows.close(version=5)

    assert 1 == len(rig.desk.closed)
    assert not rig.windows.recording


def test_many_threads_closing_at_once_close_once(rig: Rig) -> None:
    """
    Whoever claims the window closes it.
    """
    rig.open()
    barrier = threading.Barrier(8)

    def close() -> None:
        barrier.wait()
        rig.windows.close(version=5)

    threads = [threading.Thread(target=close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 == len(rig.desk.closed) == rig.profiler.calls.count("stop")


@pytest.mark.parametrize(
    ("answer", "reason"), [(wire.Deny(id=1, reason="busy_device"), "busy_device"), (None, "sidecar_lost")]
)
def test_without_a_grant_nothing_starts(rig: Rig, answer: wire.Message | None, reason: str) -> None:
    """
    The step goes on unrecorded, and what became of the window can be asked.
    """
    rig.desk.answer = lambda: answer

    assert not rig.open()
    assert [] == rig.profiler.calls
    assert {"state": "denied", "reason": reason, "window": ""} == rig.windows.outcome()


def test_a_foreign_profiler_is_not_even_asked_about(rig: Rig) -> None:
    """
    The window is missed for that reason; theirs is untouched.
    """
    rig.profiler.is_foreign = True

    assert not rig.open()
    assert (["foreign_profiler"], [], []) == (rig.desk.missed, rig.desk.asked, rig.profiler.calls)


def test_one_window_at_a_time(rig: Rig) -> None:
    """
    Entering a step while a window records opens no second one.
    """
    assert rig.open()
    assert not rig.windows.open(step=6, param_version=5)
    assert ["busy_process"] == rig.desk.missed


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("x"), "start_error"),
        (ForeignProfilerError("x"), "foreign_profiler"),
        (UnavailableError("x"), "tool_unavailable"),
    ],
)
def test_a_profiler_that_does_not_start_ends_its_window(rig: Rig, error: Exception, reason: str) -> None:
    """
    Nothing is raised; the next window is not affected.
    """
    rig.profiler.errors["start"] = error

    assert not rig.open()
    assert [("failed", reason)] == rig.desk.ended
    assert rig.open(6)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("x"), "stop_error"),
        (ForeignProfilerError("x"), "foreign_profiler"),
        (NoArtifactError("x"), "no_artifact"),
        (OSError(28, "No space left on device"), "stop_error"),
    ],
)
def test_a_profiler_that_does_not_stop_ends_its_window(rig: Rig, error: Exception, reason: str) -> None:
    """
    Nothing is raised; the next window is not affected.
    """
    rig.profiler.errors["stop"] = error
    rig.open()
    rig.windows.close(version=5)

    assert [("failed", reason)] == rig.desk.ended
    assert rig.open(6)


def test_a_tool_that_this_process_lacks_ends_its_window(rig: Rig) -> None:
    """
    The sidecar granted something that is not here.
    """
    rig.desk.tool = "unheard_of"

    assert not rig.open()
    assert [("failed", "tool_unavailable")] == rig.desk.ended


def test_a_folder_that_cannot_be_made_ends_its_window(rig: Rig) -> None:
    """
    An unwritable place is said, not raised.
    """
    (rig.desk.folder / "w1").write_text("a file is in the way")

    assert not rig.open()
    assert [("failed", "start_error")] == rig.desk.ended


def test_a_window_whose_span_never_began_is_not_kept(rig: Rig) -> None:
    """
    Nobody could find its recording.
    """
    assert rig.windows.open(step=5, param_version=4)
    rig.windows.close(version=5)

    assert [("failed", "not_started")] == rig.desk.ended
    assert not (rig.desk.folder / "w1" / "recording.json").exists()


def test_opened_in_the_middle_of_a_step_is_said(rig: Rig) -> None:
    """
    The recording lacks the step's beginning, whatever else the close says.
    """
    rig.windows.open(step=5, param_version=4, late=True)
    rig.windows.started(trace_id=TRACE, span_id=SPAN)
    rig.windows.close(version=5, incomplete="not_published")

    assert "opened_late" == rig.desk.closed[0].incomplete


def test_a_stop_is_carried_out_at_once_where_any_thread_may(rig: Rig) -> None:
    """
    The boundary that comes later does nothing.
    """
    rig.open()
    rig.windows.stop("w1", "stopped_by_user")
    until(lambda: bool(rig.desk.closed))
    rig.windows.close(version=5)

    assert [("stopped_by_user", "stopped", 4)] == [
        (item.reason, item.incomplete, item.version_at_close) for item in rig.desk.closed
    ]


def test_a_stop_that_comes_while_opening_is_not_lost(rig: Rig) -> None:
    """
    It names a window that is only starting.
    """

    def grant() -> wire.Message | None:
        granted = rig.desk.grant()
        rig.windows.stop("w1", "stopped_by_user")
        return granted

    rig.desk.answer = grant
    rig.open()

    until(lambda: bool(rig.desk.closed))


def test_a_stop_for_another_window_is_ignored(rig: Rig) -> None:
    """
    It may be late.
    """
    rig.open()
    rig.windows.stop("w7", "stopped_by_user")
    rig.windows.close(version=5)

    assert ["boundary"] == [item.reason for item in rig.desk.closed]


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_stop_waits_for_the_owners_next_span(bound: Rig, at: str) -> None:
    """
    A thread-bound profiler is stopped by its thread alone.
    """
    bound.open()
    bound.windows.span_started(1, "process")
    bound.windows.stop("w1", "stopped_by_user")
    elsewhere(lambda: bound.windows.span_started(2, "other"))
    assert bound.windows.recording

    if at == "start":
        bound.windows.span_started(3, "next")
    else:
        bound.windows.span_ended(1)

    assert ["stopped_by_user"] == [item.reason for item in bound.desk.closed]
    assert "enter next #0000000000000003" not in bound.profiler.calls


def test_a_boundary_on_another_thread_is_left_to_the_owner(bound: Rig) -> None:
    """
    The window ends at the owner's next span, says why, and the next one is asked for differently.
    """
    bound.open()
    elsewhere(lambda: bound.windows.close(version=5))
    assert bound.windows.recording

    bound.windows.span_started(9, "next")
    bound.open(6)

    assert [("wrong_thread", "closed_late", 5)] == [
        (item.reason, item.incomplete, item.version_at_close) for item in bound.desk.closed
    ]
    assert [False, True] == bound.desk.asked


def test_the_owners_next_step_ends_what_was_left_to_it(bound: Rig) -> None:
    """
    Without a span in between.
    """
    bound.open()
    elsewhere(lambda: bound.windows.close(version=5))

    assert bound.open(6)
    assert ["wrong_thread"] == [item.reason for item in bound.desk.closed]


def test_a_window_whose_owner_has_gone_is_given_up(bound: Rig) -> None:
    """
    Nobody stops its profiler; the next step can record.
    """
    elsewhere(bound.open)

    assert bound.open(6)
    assert [("failed", "wrong_thread")] == bound.desk.ended
    assert ["start", "abandon", "start"] == bound.profiler.calls


def test_a_thread_in_the_owners_stead_is_not_the_owner(bound: Rig) -> None:
    """
    Python often gives the ident of a thread that ended to the next one; the first one's profiler is not touched there.
    """
    elsewhere(bound.open)
    for _ in range(5):
        elsewhere(lambda: bound.windows.close(version=5))
    stopped = "stop" in bound.profiler.calls
    bound.windows.end(version=5, timeout=1.0)

    assert not stopped
    assert [("failed", "wrong_thread")] == bound.desk.ended


def test_at_exit_another_threads_window_is_given_up(bound: Rig) -> None:
    """
    Stopping it would crash the exit.
    """
    elsewhere(bound.open)
    bound.windows.end(version=4, timeout=5)

    assert [("failed", "wrong_thread")] == bound.desk.ended
    assert "stop" not in bound.profiler.calls


def test_at_exit_ones_own_window_is_kept(rig: Rig) -> None:
    """
    What was recorded is finalised, and nothing opens any more.
    """
    rig.open()
    rig.windows.end(version=4, timeout=5)

    assert [("process_exit", "process_exit")] == [(item.reason, item.incomplete) for item in rig.desk.closed]
    assert not rig.open(6)


@pytest.mark.parametrize("thread_bound", [False, True])
def test_a_window_over_its_seconds_is_capped(rig: Rig, bound: Rig, thread_bound: bool) -> None:
    """
    It closes early, is kept, and says so.
    """
    chosen = bound if thread_bound else rig
    chosen.desk.caps = wire.Caps(seconds=0.01)
    chosen.open()
    chosen.seconds = 1.0

    def closed() -> bool:
        # The owner's next span, at which a thread-bound one is stopped.
        chosen.windows.span_ended(1)
        return bool(chosen.desk.closed)

    until(closed)

    assert [("cap_seconds", "capped")] == [(item.reason, item.incomplete) for item in chosen.desk.closed]


def test_a_window_over_its_bytes_is_capped(rig: Rig) -> None:
    """
    Marks are counted at what they take in the file.
    """
    rig.desk.caps = wire.Caps(bytes=1000)
    rig.open()
    for number in range(5):
        rig.windows.span_started(number, "s")

    until(lambda: bool(rig.desk.closed))
    assert "cap_bytes" == rig.desk.closed[0].reason


def test_spans_begun_before_the_window_are_reported(rig: Rig) -> None:
    """
    As they were when the window opened.
    """
    rig.windows.live_spans = lambda: [(7, "rollout.generate", 5, threading.get_ident())]
    rig.open()
    rig.windows.span_ended(7)
    rig.windows.close(version=5)

    assert [("rollout.generate", 5, 1000)] == [
        (item.name, item.start_unix_ns, item.end_unix_ns) for item in rig.desk.closed[0].continued
    ]


def test_live_spans_that_cannot_be_had_do_not_cost_the_window(rig: Rig) -> None:
    """
    The profiler runs already by then.
    """

    def broken() -> list[tuple[int, str, int, int]]:
        raise RuntimeError("x")

    rig.windows.live_spans = broken

    assert rig.open()


def test_an_engine_is_driven_by_the_async_calls(tmp_path: Path) -> None:
    """
    Its start and stop are awaited; a plain call cannot drive it and says so.
    """
    engine = FakeEngine()
    rig = Rig(tmp_path, engine)

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        rig.windows.span_started(1, "rollout.generate")
        await rig.windows.aclose(version=5)

    asyncio.run(step())
    assert not rig.open(6)
    rig.windows.end(version=5, timeout=5)

    assert ["start", "stop"] == engine.calls
    assert ("engine.json", ["rollout.generate"]) == (
        rig.desk.closed[0].artifact,
        [span.name for span in rig.desk.closed[0].continued],
    )
    assert [("failed", "tool_unavailable")] == rig.desk.ended


def test_an_engine_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The loop goes on after the deadline.
    """
    monkeypatch.setattr(recorder, "ENGINE_DEADLINE", 0.05)
    engine = FakeEngine()
    rig = Rig(tmp_path, engine)

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        engine.hang = True
        await rig.windows.aclose(version=5)

    asyncio.run(step())
    rig.windows.end(version=5, timeout=5)

    assert [("failed", "stop_timeout")] == rig.desk.ended


def test_a_stop_reaches_an_engine_through_its_loop(tmp_path: Path) -> None:
    """
    The watchdog's thread cannot await; the loop that opened can.
    """
    rig = Rig(tmp_path, FakeEngine())

    async def step() -> None:
        assert await rig.windows.aopen(step=5, param_version=4)
        rig.windows.started(trace_id=TRACE, span_id=SPAN)
        rig.windows.stop("w1", "stopped_by_user")
        for _ in range(1000):
            if rig.desk.closed:
                return
            await asyncio.sleep(0.01)

    asyncio.run(step())
    rig.windows.end(version=5, timeout=5)

    assert ["stopped_by_user"] == [item.reason for item in rig.desk.closed]


@pytest.mark.parametrize("at", ["start", "stop"])
def test_an_interrupt_waits_until_the_profiler_has_done_it(rig: Rig, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Ctrl-C in the midst of a start or stop is raised after it, and the window ends as any other.
    """
    before = rig.profiler._call

    def interrupted(what: str) -> None:
        if what == at:
            signal.raise_signal(signal.SIGINT)
        before(what)

    monkeypatch.setattr(rig.profiler, "_call", interrupted)

    interrupted_at = []
    for name, call in (
        ("start", lambda: rig.windows.open(step=5, param_version=4)),
        ("between", lambda: rig.windows.started(trace_id=TRACE, span_id=SPAN)),
        ("stop", lambda: rig.windows.close(version=5)),
    ):
        try:
            call()
        except KeyboardInterrupt:
            interrupted_at.append(name)

    assert [at] == interrupted_at
    assert ["start", "stop"] == [call for call in rig.profiler.calls if call in {"start", "stop"}]
    assert ["w1"] == [record.window for record in rig.desk.closed]


@pytest.mark.parametrize(("at", "reason"), [("start", "start_error"), ("stop", "stop_error")])
def test_a_task_cancelled_while_an_engine_is_at_it_ends_the_window(tmp_path: Path, at: str, reason: str) -> None:
    """
    The cancellation goes on, and the sidecar learns that nothing will come.
    """
    desk, engine = Desk(tmp_path), FakeEngine()
    desk.tool = engine.name
    windows = Windows(control=desk, profilers=Registry({engine.name: engine}), tool=engine.name)

    async def step() -> None:
        engine.hang = at == "start"
        await windows.aopen(step=5, param_version=4)
        windows.started(trace_id=TRACE, span_id=SPAN)
        engine.hang = True
        await windows.aclose(version=5)

    async def run() -> bool:
        task = asyncio.create_task(step())
        while at not in engine.calls:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    cancelled = asyncio.run(run())
    windows.end(version=5, timeout=1.0)

    assert cancelled
    assert [("failed", reason)] == desk.ended
    assert not windows.listed()
