"""
The controller: registrations, orders, what survives a restart, who is missing.
"""

from pathlib import Path

import pytest

from stepscope import wire
from stepscope.errors import SelectionError
from stepscope.names import Reason, State

from .rig import FakeLink, Rig, closed, register, reopened, started


def test_a_registration_is_told_what_is_selected(rig: Rig) -> None:
    """
    Selection, revision, where to send spans.
    """
    _, link = rig.register()

    answer = link.last()
    assert isinstance(answer, wire.Registered)
    assert ("5,8-9", 1, False, "http://127.0.0.1:1") == (
        answer.selection,
        answer.revision,
        answer.stopped,
        answer.otlp_endpoint,
    )


@pytest.mark.parametrize(
    "changes", [{"attempt": "a2"}, {"run": "other"}, {"protocol": 99}, {"role": "../up"}, {"role": ""}, {"rank": -1}]
)
def test_a_registration_that_is_not_ours_is_refused(rig: Rig, changes: dict[str, object]) -> None:
    """
    Another attempt, another protocol, a role that is no name of a folder.
    """
    link = FakeLink()

    assert rig.controller.register(register(100, **changes), link, peer=100) is None
    assert isinstance(link.last(), wire.Refused)
    assert [] == rig.ledger.processes


def test_the_first_environment_holds_and_another_is_warned_of(tmp_path: Path) -> None:
    """
    A sidecar without a selection of its own takes that of the first process; the second is told that it differs.
    """
    rig = Rig(tmp_path, STEPSCOPE_STEPS="", STEPSCOPE_RANKS="")
    _, first = rig.register(100, environment={"STEPSCOPE_STEPS": "7", "STEPSCOPE_LEVEL": "ops"})
    _, second = rig.register(101, rank=1, environment={"STEPSCOPE_STEPS": "8"})

    answers = [first.last(), second.last()]

    assert ["7", "7"] == [item.selection for item in answers if isinstance(item, wire.Registered)]
    assert isinstance(answers[1], wire.Registered)
    assert "STEPSCOPE_STEPS='8'" in answers[1].warnings[0]
    assert "ops" == rig.controller.plan.level


def test_steps_that_cannot_occur_are_named(rig: Rig) -> None:
    """
    Resumed at version 5 with 8 steps in all: 5 is over, 9 never comes.
    """
    _, link = rig.register(resumed_from=5, total_steps=8)

    answer = link.last()
    assert isinstance(answer, wire.Registered)
    assert "selected steps 5, 9 cannot occur" in answer.warnings[0]


def test_a_misspelt_role_is_warned_of_once_a_step_is_finished(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """
    In the status and, once, in the log: nothing records the role that was meant with the tool that was meant.
    """
    rig = Rig(tmp_path, STEPSCOPE_TOOLS="trianer=py-spy,rollouter=torch")
    process, _ = rig.register()
    rig.register(101, role="driver", register_only=True)
    rig.controller.tick()
    before = rig.controller.warnings
    rig.controller.handle(process, wire.StepClosed(step=1))
    rig.controller.tick()
    rig.controller.tick()

    said = [record.getMessage() for record in caplog.records if "STEPSCOPE_TOOLS" in record.getMessage()]
    assert [] == before
    assert said == rig.controller.warnings
    (warning,) = said
    assert "STEPSCOPE_TOOLS names 'rollouter', 'trianer', which no process of this node has registered as" in warning
    assert "it does not name trainer (by torch): a misspelt role, unless it is on another node" in warning


@pytest.mark.parametrize("tools", ["torch", "trainer=torch", "trainer=torch,rollouter=vllm", "torch,trainer=py-spy"])
def test_roles_of_other_nodes_are_no_mistake(tmp_path: Path, tools: str) -> None:
    """
    Where every role that is here is named, or none is.
    """
    rig = Rig(tmp_path, STEPSCOPE_TOOLS=tools)
    process, _ = rig.register()
    rig.controller.handle(process, wire.StepClosed(step=1))

    assert [] == rig.controller.warnings


def test_a_closed_connection_alone_is_no_death(rig: Rig) -> None:
    """
    A window goes on when its connection breaks, however long, while its process lives.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, started(name))
    rig.controller.unlinked(process, link)
    rig.now += 3600
    rig.controller.tick()

    assert State.RECORDING is rig.ledger.rows[name].state
    assert process.alive


def test_a_killed_process_loses_its_window(rig: Rig) -> None:
    """
    `kill -9`: aborted, process_lost.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, started(name))
    rig.controller.gone(process)

    assert {name: "aborted:process_lost"} == rig.states()


def test_a_process_killed_after_its_close_record_keeps_its_recording(rig: Rig) -> None:
    """
    What was closed on disk is finalised, whatever became of the message.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.records[name] = closed(name)
    rig.controller.gone(process)

    assert State.FINALISING is rig.ledger.rows[name].state
    assert [name] == rig.jobs


def test_another_role_on_the_same_connection_is_another_registration(rig: Rig) -> None:
    """
    Ray reuses workers: what the former role had open is over.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    again, _ = rig.register(link=link, former=process, role="rollouter")

    assert {name: "aborted:reregistered"} == rig.states()
    assert [again] == rig.controller.processes.alive()


def test_stop_closes_what_is_open_and_opens_no_more(rig: Rig) -> None:
    """
    Everybody is told; new windows are denied until a person names steps again.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, started(name))

    assert 1 == rig.controller.stop("api")
    assert 0 == rig.controller.stop("api")
    assert wire.Stop(window=name, reason=Reason.STOPPED_BY_USER) in link.sent
    assert wire.Selected(selection="5,8-9", revision=2, stopped=True, source="api") in link.sent
    rig.controller.handle(process, closed(name, "stopped_by_user"))
    assert Reason.STOPPED_BY_USER == rig.open(process, link, step=8)
    denied = [row for row in rig.ledger.rows.values() if row.step == 8]
    assert [(State.DENIED, Reason.STOPPED_BY_USER)] == [(row.state, row.reason) for row in denied]

    rig.controller.set_selection("9", "api")

    assert wire.Selected(selection="9", revision=3, stopped=False, source="api") == link.last()
    assert rig.open(process, link, step=9) in rig.ledger.rows
    assert [2, 3] == [plan.revision for plan in rig.ledger.plans if plan.revision > 1]


def test_a_process_is_warned_of_a_file_that_stops_its_run(rig: Rig) -> None:
    """
    It may have been forgotten; what a person ordered just now needs no warning.
    """
    rig.controller.stop("file /runs/STOP")
    _, stopped = rig.register()
    rig.controller.set_selection("5", "api")
    _, overridden = rig.register(101, rank=1)
    rig.controller.stop("api")
    _, ordered = rig.register(102, rank=2)
    answers = [link.sent[0] for link in (stopped, overridden, ordered)]

    assert [1, 0, 0] == [len(answer.warnings) for answer in answers if isinstance(answer, wire.Registered)]
    assert "stopped by the file /runs/STOP" in str(answers[0])
    assert "api" == rig.controller.plan.stopped_by


def test_a_selection_that_cannot_be_read_changes_nothing(rig: Rig) -> None:
    """
    The error names the grammar; the plan stays.
    """
    with pytest.raises(SelectionError, match="grammar"):
        rig.controller.set_selection("five", "api")

    assert ("5,8-9", 1) == (rig.controller.plan.selection.text, rig.controller.plan.revision)


def test_a_process_that_comes_back_while_stopped_is_told_to_stop(rig: Rig) -> None:
    """
    An order given while its connection was down reaches it all the same.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, started(name))
    rig.controller.unlinked(process, link)
    rig.controller.stop("api")
    _, again = rig.register(open_windows=[reopened(name)])

    assert wire.Stop(window=name, reason=Reason.STOPPED_BY_USER) in again.sent


def test_expected_recordings_that_were_not_made_are_counted(rig: Rig) -> None:
    """
    Of two ranks of three one recorded, one failed, one was never heard of; decided once step 6 is closed.
    """
    links = [rig.register(100 + rank, rank=rank, world_size=3) for rank in range(2)]
    for process, link in links:
        rig.controller.handle(process, wire.Version(step=5, param_version=4))
        name = rig.open(process, link)
        if process.rank == 0:
            rig.controller.handle(process, closed(name))
            rig.done(name)
        else:
            rig.controller.handle(process, wire.Ended(window=name, state="failed", reason="start_error"))
        rig.controller.handle(process, wire.StepClosed(step=5))
    rig.controller.tick()
    before = dict(rig.controller.census.by_role)
    for process, _ in links:
        rig.controller.handle(process, wire.Version(step=6, param_version=5))
        rig.controller.handle(process, wire.StepClosed(step=6))
    rig.controller.tick()

    assert {} == before
    assert {"trainer": 2} == rig.controller.census.by_role
    assert [(1, "start_error"), (2, "never_registered")] == [
        (item.rank, item.reason) for item in rig.controller.census.missing[5]
    ]
    assert [(5, "trainer", 1, "start_error"), (5, "trainer", 2, "never_registered")] == [
        (row.step, row.role, row.rank, row.reason) for row in rig.ledger.absent
    ]


def test_the_version_that_a_step_made_is_known_when_it_is_closed(rig: Rig) -> None:
    """
    Also the one published last, which no step is entered with; a replica's boundary makes none.
    """
    trainer, _ = rig.register()
    replica, _ = rig.register(101, role="rollouter")
    rig.controller.handle(trainer, wire.Version(step=5, param_version=4))
    rig.controller.handle(replica, wire.Version(step=5, param_version=4))
    rig.controller.handle(trainer, wire.StepClosed(step=5, param_version=5))
    rig.controller.handle(replica, wire.StepClosed(step=5))

    assert {"trainer": 5, "rollouter": 4} == rig.controller.processes.versions()
    assert [5, 4] == [process.param_version for process in rig.ledger.processes[-2:]]


def test_a_partial_step_is_expected_of_nobody(rig: Rig) -> None:
    """
    What follows the last update is no step of the run.
    """
    process, _ = rig.register()
    rig.controller.handle(process, wire.Version(step=5, param_version=4))
    rig.controller.handle(process, wire.StepClosed(step=5, partial=True))
    rig.controller.handle(process, wire.Bye())
    rig.controller.tick()

    assert {} == {step: items for step, items in rig.controller.census.missing.items() if items}


def test_a_process_in_another_namespace_is_lost_when_it_stays_away(rig: Rig) -> None:
    """
    Without a pid that can be watched, only its connection tells.
    """
    link = FakeLink()
    process = rig.controller.register(register(), link, peer=0)
    assert process is not None
    rig.controller.unlinked(process, link)
    rig.now += 11
    rig.controller.tick()

    assert not process.alive


def test_samples_and_losses_reach_the_ledger(rig: Rig) -> None:
    """
    They are kept as they came.
    """
    process, _ = rig.register()
    samples = wire.Samples(step=5, mini_batch=0, param_version=4, rows=[["s", 3, 4, None, None]])
    rig.controller.handle(process, samples)
    rig.controller.handle(process, wire.Dropped(spans={"queue_full": 3}))

    assert [samples] == rig.ledger.taken
    assert {"queue_full": 3} == rig.ledger.lost
