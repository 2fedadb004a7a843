"""
A change of the selection while the run goes on: heard by the agent, told on the process's span.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope import registration, wire
from stepscope.agent import Agent
from stepscope.profilers import Registry
from stepscope.seam import Change, Identity
from stepscope.settings import Settings
from stepscope.testing import capture_spans
from tests.unit.stepscope.fake_profiler import FakeProfiler
from tests.unit.stepscope.fake_sidecar import FakeSidecar, until


@pytest.fixture
def heard() -> list[Change]:
    """
    The changes that the agent told of.
    """
    return []


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[FakeSidecar]:
    """
    One that listens.
    """
    with FakeSidecar(tmp_path / "s.sock", tmp_path) as fake:
        yield fake


@pytest.fixture
def agent(tmp_path: Path, sidecar: FakeSidecar, heard: list[Change]) -> Iterator[Agent]:
    """
    A registered agent.
    """
    socket = tmp_path / "s.sock"
    settings = Settings(run="r", attempt="a", directory=tmp_path, socket=socket, boundary_seconds=60.0)
    made = Agent.start(
        settings,
        Identity(role="trainer"),
        profilers=Registry({"torch": FakeProfiler()}),
        changed=heard.append,
        ensure=lambda _: "",
    )
    yield made
    made.close(1.0)


def test_each_change_is_told_once(agent: Agent, sidecar: FakeSidecar, heard: list[Change]) -> None:
    """
    What the first registration brings is no change, nor is what says the same again.
    """
    sidecar.say(wire.Selected(selection="9", revision=3, stopped=False, source="file"))
    sidecar.say(wire.Selected(selection="9", revision=4, stopped=False, source="api"))
    sidecar.say(wire.Selected(selection="9", revision=5, stopped=True, source="api"))
    until(lambda: len(heard) == 2)

    assert [
        Change(steps="9", revision=3, stopped=False, source="file"),
        Change(steps="9", revision=5, stopped=True, source="api"),
    ] == heard


def test_while_stopped_a_selected_step_is_not_recorded(agent: Agent, sidecar: FakeSidecar) -> None:
    """
    It is still asked for, so that the sidecar lists it; requests beyond the budget are not emitted for it.
    """
    sidecar.say(wire.Selected(selection="9", revision=3, stopped=False))
    until(lambda: agent.records(9))
    sidecar.say(wire.Selected(selection="9", revision=4, stopped=True))
    until(lambda: not agent.records(9))

    assert agent.selected(9)


def test_a_change_is_an_event_of_the_processs_span() -> None:
    """
    Of the one in whose time it came, or of the next; never of one that has ended.
    """
    with capture_spans() as captured:
        assert registration.session is not None
        tell = registration.session.spans.news
        with stepscope.step():
            tell(Change(steps="9", revision=3, stopped=False, source="file"))
            stepscope.weights_published(1)
        tell(Change(steps="9", revision=4, stopped=True))
        with stepscope.step():
            stepscope.weights_published(2)
        with stepscope.step():
            stepscope.weights_published(3)

    events = {
        span.step: [(name, dict(told)) for name, told in span.events] for span in captured.named("rl.step.process")
    }
    assert [
        (
            "selection.changed",
            {
                "rl.selection.steps": "9",
                "rl.selection.revision": 3,
                "rl.selection.stopped": False,
                "rl.selection.source": "file",
            },
        )
    ] == events[1]
    assert [
        (
            "selection.changed",
            {"rl.selection.steps": "9", "rl.selection.revision": 4, "rl.selection.stopped": True},
        )
    ] == events[2]
    assert [] == events[3]


def test_requests_beyond_the_budget_are_emitted_only_where_the_step_is_recorded() -> None:
    """
    A stop ends that: nothing is recorded that they could be seen beside.
    """
    emitted = {}
    for stopped in (False, True):
        with capture_spans(role="rollouter", selected={1}, request_spans=1) as captured:
            captured.agent.stopped = stopped
            stepscope.weights_loaded(0)
            for _ in range(3):
                with stepscope.span("rollout.generate", request=True):
                    pass
            stepscope.weights_loading()
        emitted[stopped] = len(captured.named("rollout.generate"))

    assert {False: 3, True: 1} == emitted
