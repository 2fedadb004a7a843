"""
The windows of a process: opened and closed exactly once, whatever fails.
"""

import signal
import threading
from dataclasses import replace

import pytest
from opentelemetry.sdk.resources import Resource

from stepscope import bridge, provider, recorder, slot, wire
from stepscope.complaints import Complaints
from stepscope.profilers import ForeignProfilerError, NoArtifactError, Recording, Request, UnavailableError
from tests.unit.stepscope.desk import SPAN, TRACE, Rig


def test_a_window_from_grant_to_record(rig: Rig) -> None:
    """
    Start, then the span, then the message; marks end before the stop; the record lies beside the file, in the place of
    the grant.
    """
    assert rig.open()
    grant = wire.decode((rig.desk.folder / "w1" / wire.GRANTED).read_bytes())
    rig.windows.span_started(0xA, "train")
    rig.windows.close(version=5)
    closed = rig.desk.closed[0]

    assert not (rig.desk.folder / "w1" / wire.GRANTED).exists()
    mark = "train #000000000000000a"
    assert ["start", f"enter {mark}", f"exit {mark}", "stop"] == rig.profiler.calls
    assert isinstance(grant, wire.Grant)
    assert "w1" == grant.window
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
    assert closed == wire.load_closed((rig.desk.folder / "w1" / wire.RECORD).read_bytes())
    assert {"stepscope.run": "r", "stepscope.step": "5", "stepscope.window": "w1"}.items() <= closed.metadata.items()
    assert closed.metadata == rig.profiler.metadata


def test_what_a_profiler_says_nothing_of_is_the_time_that_stopping_took(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    One of a user's own that times nothing has kept its process waiting all the same.
    """
    stopped = rig.profiler.stop

    def silent(request: Request, *, keep: bool = True) -> Recording:
        threading.Event().wait(0.02)
        return replace(stopped(request, keep=keep), stall={})

    monkeypatch.setattr(rig.profiler, "stop", silent)
    rig.open()
    rig.windows.close(version=5)

    assert {"open", "start", "stop"} == set(rig.desk.closed[0].stall)
    assert 0.02 <= rig.desk.closed[0].stall["stop"]


@pytest.mark.parametrize("lingers", [False, True])
def test_a_thread_that_loses_its_core_as_it_ends_marks_has_a_longer_window(
    rig: Rig, lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    No mark ends after the window, and what the profiler does from then on is not in it.
    """

    def later(_: object) -> None:
        rig.unix_ns += 2_000_000

    monkeypatch.setattr(rig.profiler, "exit", later)
    rig.open()
    rig.windows.span_started(0xA, "train")
    if lingers:
        assert rig.windows.linger(version=5)
        rig.unix_ns += 1_000_000_000
    rig.windows.close(version=5)

    assert [(1000, 2_001_000)] == [(one.opened_unix_ns, one.closed_unix_ns) for one in rig.desk.closed]


@pytest.mark.parametrize("at", ["enter", "exit"])
def test_a_mark_that_raises_costs_no_span(rig: Rig, at: str) -> None:
    """
    The span is delivered, training goes on, and the window is kept.
    """
    delivered: list[str] = []
    live = provider.Live(sink=lambda span: delivered.append(span.name), windows=rig.windows, version=0)
    tracer = provider.make(live=live, ids_=provider.Ids(), resource=Resource({})).get_tracer("t")

    def broken(told: object) -> object:
        raise RuntimeError(at)

    setattr(rig.profiler, at, broken)
    rig.open()
    with tracer.start_as_current_span("train"):
        pass
    rig.windows.close(version=5)

    assert ["train"] == delivered
    assert ["boundary"] == [item.reason for item in rig.desk.closed]


def test_closing_twice_closes_once(rig: Rig) -> None:
    """
    The second finds nothing open.
    """
    rig.open()
    rig.windows.close(version=5)
    rig.windows.close(version=5)

    assert 1 == len(rig.desk.closed)
    assert not rig.windows.recording


def test_a_window_that_is_not_listed_any_more_is_in_nobodys_way() -> None:
    """
    Whoever sees that nothing is open may open: the closing thread may lose its core at any point.
    """
    seen: list[tuple[list[wire.OpenWindow], bool]] = []
    kept = slot.Slot()

    class Slow(threading.Event):
        def set(self) -> None:
            """
            Let somebody look first, as far as that is possible.
            """
            looking.start()
            looking.join(0.2)
            super().set()

    looking = threading.Thread(target=lambda: seen.append((kept.listed(), kept.busy)))
    kept._idle = Slow()
    kept.closed()
    looking.join()

    assert [([], False)] == seen


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
    assert (["foreign_profiler"], 0, []) == (rig.desk.missed, rig.desk.asked, rig.profiler.calls)


def test_one_window_at_a_time(rig: Rig) -> None:
    """
    Entering a step while a window records opens no second one.
    """
    assert rig.open()
    assert not rig.windows.open(step=6, param_version=5)
    assert ["busy_process"] == rig.desk.missed


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (RuntimeError("x"), "failed", "start_error"),
        (ForeignProfilerError("x"), "failed", "foreign_profiler"),
        (UnavailableError("x"), "denied", "tool_unavailable"),
    ],
)
def test_a_profiler_that_does_not_start_ends_its_window(rig: Rig, error: Exception, state: str, reason: str) -> None:
    """
    Nothing is raised; the next window is not affected.
    """
    rig.profiler.errors["start"] = error

    assert not rig.open()
    assert [(state, reason)] == rig.desk.ended
    assert state == rig.windows.outcome()["state"]
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
    assert [("denied", "tool_unavailable")] == rig.desk.ended


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


def test_a_record_that_cannot_be_told_ends_its_window(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The sidecar would take it for open as long as the process lives, and grant no other.
    """
    tell = rig.desk.tell

    def told(message: wire.Message) -> None:
        if isinstance(message, wire.Closed):
            raise TypeError("cannot be encoded")
        tell(message)

    monkeypatch.setattr(rig.desk, "tell", told)
    rig.open()
    rig.windows.close(version=5)

    assert [("failed", "stop_error")] == rig.desk.ended
    assert "failed" == rig.windows.outcome()["state"]
    assert not rig.windows.recording


def test_spans_that_a_close_record_does_not_list_are_said(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Whether they are in the recording is not looked at.
    """
    monkeypatch.setattr(bridge, "MAX_LISTED", 2)
    monkeypatch.setattr(recorder, "complaints", Complaints())
    rig.open()
    for number in range(5):
        rig.windows.span_started(number, "s")
        rig.windows.span_ended(number)
    rig.windows.close(version=5)

    assert 2 == len(rig.desk.closed[0].mirrored)
    assert ["window w1 does not list 3 of its spans"] == [record.getMessage() for record in caplog.records]
