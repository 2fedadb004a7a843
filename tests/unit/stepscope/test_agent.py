"""
The agent: registration, the local copy of the selection, what a boundary tells, and being inert.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import wire
from stepscope.agent import RECENT, Agent
from stepscope.complaints import Complaints
from stepscope.profilers import Registry
from stepscope.seam import Identity
from stepscope.selection import Selection
from stepscope.settings import Settings
from tests.unit.stepscope.fake_profiler import FakeProfiler
from tests.unit.stepscope.fake_sidecar import FakeSidecar, until

IDENTITY = Identity(role="trainer", rank=2, world_size=4, param_version=3, resumed_from=3, device_ids=("gpu-0",))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """
    A run whose socket is in the test's folder.
    """
    return Settings(
        run="r",
        attempt="a",
        directory=tmp_path,
        socket=tmp_path / "s",
        selection=Selection.parse("5"),
        boundary_seconds=60.0,
    )


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[FakeSidecar]:
    """
    A sidecar that answers; its selection is 7.
    """
    with FakeSidecar(tmp_path / "s", tmp_path, steps="7") as fake:
        yield fake


@pytest.fixture
def agent(settings: Settings, sidecar: FakeSidecar) -> Iterator[Agent]:
    """
    An agent that has registered.
    """
    made = Agent.start(settings, IDENTITY, profilers=Registry({"torch": FakeProfiler()}))
    yield made
    made.close(1.0)


def test_registers_as_it_was_told(agent: Agent, sidecar: FakeSidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Role, rank, version, process and tools are in the registration.
    """
    message = sidecar.wait(wire.Register)[0]

    assert ("trainer", 2, 4, 3, 3, ["gpu-0"]) == (
        message.role,
        message.rank,
        message.world_size,
        message.param_version,
        message.resumed_from,
        message.device_ids,
    )
    assert (os.getpid(), "", []) == (message.pid, message.tools["torch"], message.open_windows)
    assert message.process_start > 0


def test_selection_is_the_sidecars_and_is_followed(agent: Agent, sidecar: FakeSidecar) -> None:
    """
    The environment is only the initial value; what is pushed holds, unless it is older than what is known.
    """
    assert (False, True) == (agent.selected(5), agent.selected(7))

    sidecar.say(wire.Selected(selection="9", revision=3, stopped=False))
    until(lambda: agent.selected(9))
    sidecar.say(wire.Selected(selection="1", revision=2, stopped=False))
    sidecar.say(wire.Selected(selection="10", revision=4, stopped=False))
    until(lambda: agent.selected(10))

    assert (False, False) == (agent.selected(1), agent.selected(9))


def test_while_stopped_a_selected_step_is_asked_for_and_denied(agent: Agent, sidecar: FakeSidecar) -> None:
    """
    What is not recorded is listed, by the sidecar, which has to hear of it.
    """

    def denied(message: wire.Message) -> list[wire.Message | bytes]:
        assert isinstance(message, wire.Open)
        return [wire.Deny(id=message.id, reason="stopped_by_user")]

    sidecar.answers[wire.Open] = denied
    sidecar.say(wire.Selected(selection="9", revision=4, stopped=True))
    until(lambda: agent.selected(9))

    assert not agent.windows.open(step=9, param_version=8)
    assert ("denied", "stopped_by_user") == (agent.windows.outcome()["state"], agent.windows.outcome()["reason"])
    assert [9] == [message.step for message in sidecar.all(wire.Open)]


def test_boundaries_are_told(agent: Agent, sidecar: FakeSidecar) -> None:
    """
    Entering, closing, samples and drops arrive in order.
    """
    agent.entered(4, 3)
    agent.samples(step=4, mini_batch=1, param_version=3, rows=[("s1", 2, 3, "t", "s")])
    agent.dropped({"queue_full": 2})
    agent.step_closed(4, version=4)
    sidecar.wait(wire.StepClosed)

    assert [
        wire.Version(step=4, param_version=3),
        wire.Samples(step=4, mini_batch=1, param_version=3, rows=[["s1", 2, 3, "t", "s"]]),
        wire.Dropped(spans={"queue_full": 2}),
        wire.StepClosed(step=4, param_version=4),
    ] == sidecar.heard[1:]
    assert "http://127.0.0.1:1" == agent.otlp_endpoint()


def test_a_window_that_is_open_is_told_at_registering_again(agent: Agent, sidecar: FakeSidecar) -> None:
    """
    A restarted sidecar learns of it, and of its end.
    """
    assert agent.windows.open(step=7, param_version=6)
    agent.windows.started(trace_id="1" * 32, span_id="2" * 16)
    sidecar.wait(wire.Started)

    sidecar.hang_up()
    message = sidecar.wait(wire.Register, 2)[1]
    agent.windows.close(version=7)

    assert [("w1", 7, "1" * 32)] == [(item.window, item.step, item.trace_id) for item in message.open_windows]
    assert "w1" == sidecar.wait(wire.Closed)[0].window


@pytest.mark.parametrize(
    ("reason", "then", "told"),
    [
        ("rank_not_selected", 7, ["rank_not_selected"]),
        ("rank_not_selected", 7 + RECENT, []),
        # Beside a window of this process, which is told by itself.
        ("duplicate", 7, []),
    ],
)
def test_a_denial_is_told_to_the_next_sidecar(
    agent: Agent, sidecar: FakeSidecar, reason: str, then: int, told: list[str]
) -> None:
    """
    The one that denied may be killed before it has written that down. Not for ever: a sidecar forgets old steps.
    """
    sidecar.answers[wire.Open] = lambda message: [wire.Deny(id=message.id, reason=reason)]  # type: ignore[union-attr]
    assert not agent.windows.open(step=7, param_version=6)
    agent.entered(then, then)

    sidecar.hang_up()
    sidecar.wait(wire.Register, 2)
    agent.dropped({"queue_full": 1})
    sidecar.wait(wire.Dropped)

    assert [(7, 6, one) for one in told] == [(x.step, x.param_version, x.reason) for x in sidecar.all(wire.Missed)]


def test_a_denial_before_a_grant_is_not_told_again(agent: Agent, sidecar: FakeSidecar) -> None:
    """
    The last answer holds: told again, the denial would be the end of the window that is open.
    """
    granted = sidecar.answers[wire.Open]
    sidecar.answers[wire.Open] = lambda message: [wire.Deny(id=message.id, reason="stopped_by_user")]  # type: ignore[union-attr]
    assert not agent.windows.open(step=7, param_version=6)
    sidecar.answers[wire.Open] = granted
    assert agent.windows.open(step=7, param_version=6, forced=True)

    sidecar.hang_up()
    sidecar.wait(wire.Register, 2)
    agent.dropped({"queue_full": 1})
    sidecar.wait(wire.Dropped)

    assert [] == sidecar.all(wire.Missed)


def test_without_a_sidecar_the_run_goes_on(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The environment's selection holds, nothing records, one warning says so.
    """
    monkeypatch.setattr("stepscope.agent.complaints", Complaints())
    monkeypatch.setattr("stepscope.connection.complaints", Complaints())
    agent = Agent.start(settings, IDENTITY, ensure=lambda _: "none is installed", profilers=Registry({}))
    try:
        assert agent.selected(5)
        assert not agent.windows.open(step=5, param_version=4)
        assert ("denied", "sidecar_lost") == (agent.windows.outcome()["state"], agent.windows.outcome()["reason"])
        assert "" == agent.otlp_endpoint()
    finally:
        agent.close(1.0)

    assert 1 == len([record for record in caplog.records if "selected steps are not recorded" in record.message])


def test_the_profiler_is_prepared_only_where_it_can_be_selected(settings: Settings, sidecar: FakeSidecar) -> None:
    """
    A process of a rank that is not selected does not pay for the first start.
    """
    prepared = {}
    for rank in (0, 1):
        profiler = FakeProfiler()
        agent = Agent.start(settings, Identity(role="trainer", rank=rank), profilers=Registry({"torch": profiler}))
        agent.close(1.0)
        prepared[rank] = profiler.calls

    assert {0: ["prepare"], 1: []} == prepared


def test_a_profiler_registered_later_is_told(agent: Agent, sidecar: FakeSidecar) -> None:
    """
    The sidecar learns of the tool by a new registration.
    """
    agent.register_profiler(FakeProfiler(name="x-engine"))

    assert "x-engine" not in sidecar.all(wire.Register)[0].tools
    assert "" == sidecar.wait(wire.Register, 2)[1].tools["x-engine"]


def test_a_profiler_by_a_name_that_nobody_can_choose_is_not_taken(
    agent: Agent, sidecar: FakeSidecar, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A warning says how to name it; the sidecar hears nothing of it.
    """
    monkeypatch.setattr("stepscope.agent.complaints", Complaints())
    agent.register_profiler(FakeProfiler(name="engine"))
    agent.register_profiler(FakeProfiler(name="x-engine"))

    tools = sidecar.wait(wire.Register, 2)[1].tools
    assert ("engine" in tools, "x-engine" in tools) == (False, True)
    assert "name it x-SOMETHING" in caplog.text


def test_a_forked_child_is_inert(agent: Agent, sidecar: FakeSidecar) -> None:
    """
    It opens no window and says nothing, and the parent is not disturbed.
    """
    child = os.fork()
    if child == 0:
        opened = agent.windows.open(step=7, param_version=6)
        agent.entered(7, 6)
        agent.close(0.1)
        os._exit(0 if not opened and agent.windows.outcome()["reason"] == "forked_child" else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert 0 == status
    assert agent.windows.open(step=7, param_version=6)
    assert [wire.Register, wire.Open] == [type(message) for message in sidecar.heard]


def test_what_the_sidecar_warns_of_is_logged_once(
    settings: Settings, sidecar: FakeSidecar, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Also where the process registers again, for another profiler.
    """
    monkeypatch.setattr("stepscope.agent.complaints", Complaints())

    def registered(message: wire.Message) -> list[wire.Message | bytes]:
        (answer,) = sidecar.registered(message)
        assert isinstance(answer, wire.Registered)
        return [replace(answer, warnings=["recording is stopped by the file /runs/STOP"])]

    sidecar.answers[wire.Register] = registered
    agent = Agent.start(settings, IDENTITY, profilers=Registry({}))
    agent.register_profiler(FakeProfiler(name="x-engine"))
    sidecar.wait(wire.Register, 2)
    agent.close(1.0)

    assert 1 == len([record for record in caplog.records if "stopped by the file" in record.message])


def test_what_windows_cost_is_added_up_and_taken_once(agent: Agent) -> None:
    """
    Of those that left a recording and of those that did not, by phase.
    """
    agent.tell(wire.Ended(window="w1", state="failed", reason="start_error", stall={"open": 0.5, "start": 1.0}))
    agent.tell(wire.Ended(window="w2", state="failed", reason="stop_error", stall={"open": 0.5, "stop": 2.0}))

    assert {"open": 1.0, "start": 1.0, "stop": 2.0} == agent.take_stall()
    assert {} == agent.take_stall()
