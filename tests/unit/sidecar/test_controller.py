"""
The controller: registrations, orders, what survives a restart, who is missing.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import wire
from stepscope.errors import SelectionError
from stepscope.names import Reason, State

from .rig import FakeLink, Rig, closed, register, reopened, started


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """
    A controller with selection 5,8-9 for all ranks.
    """
    return Rig(tmp_path)  # type: ignore[return-value]  # nothing to take down


def _states(rig: Rig) -> dict[str, str]:
    return {window.window: f"{window.state}:{window.reason}" for window in rig.ledger.rows.values()}


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


def test_a_window_is_granted_recorded_and_finalised(rig: Rig) -> None:
    """
    Grant with caps and a folder that no other window has; then recording, finalising, ready.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    grant = link.last()
    rig.controller.handle(process, started(name))
    rig.controller.handle(process, closed(name))
    rig.done(name)

    assert isinstance(grant, wire.Grant)
    assert f"{rig.settings.attempt_folder}/step-000005/trainer-0-100/torch" == grant.folder
    assert rig.settings.cap_bytes == grant.caps.bytes
    assert [State.OPENING, State.RECORDING, State.FINALISING, State.READY] == [
        window.state for window in rig.ledger.changes
    ]
    assert {"open": 0.1, "start": 0.2, "stop": 0.3} == rig.ledger.rows[name].stall
    assert "x/recording.json.gz" == rig.ledger.rows[name].artifact


def test_a_grant_never_allows_more_bytes_than_are_left(rig: Rig) -> None:
    """
    The byte budget is checked before opening, and caps what is opened.
    """
    rig.disk = 1000
    process, link = rig.register()
    rig.open(process, link)

    grant = link.last()
    assert isinstance(grant, wire.Grant)
    assert 1000 == grant.caps.bytes


def test_a_boundary_on_another_thread_falls_back_to_ops(rig: Rig) -> None:
    """
    Level spans belongs to one thread; the window says what was asked for.
    """
    process, link = rig.register()
    rig.controller.handle(process, wire.Open(id=1, step=5, param_version=4, other_thread=True))

    grant = link.last()
    assert isinstance(grant, wire.Grant)
    assert "ops" == grant.level
    assert "spans" == rig.ledger.rows[grant.window].level_fallback


def test_a_denied_window_is_a_row_and_asking_again_is_not(tmp_path: Path) -> None:
    """
    A person can see why; a step entered twice is no second window.
    """
    rig = Rig(tmp_path, STEPSCOPE_RANKS="0")
    process, link = rig.register(rank=1)

    assert [Reason.RANK_NOT_SELECTED] * 2 == [rig.open(process, link), rig.open(process, link)]
    assert ["denied:rank_not_selected"] == list(_states(rig).values())


def test_the_same_process_asking_again_gets_no_second_row(rig: Rig) -> None:
    """
    Entering step 5 again after its window closed: denied as a duplicate, the one window stays the only one.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, closed(name))

    assert Reason.DUPLICATE == rig.open(process, link)
    assert [name] == list(rig.ledger.rows)


def test_two_processes_with_one_rank_are_both_visible(rig: Rig) -> None:
    """
    The second claims a role and rank that is taken: its window is denied where a person sees it.
    """
    first, first_link = rig.register(100)
    second, second_link = rig.register(101)
    rig.open(first, first_link)

    assert Reason.DUPLICATE == rig.open(second, second_link)
    assert ["opening:", "denied:duplicate"] == list(_states(rig).values())


def test_a_window_missed_while_there_was_no_sidecar_is_a_row(rig: Rig) -> None:
    """
    The agent denied it itself and tells later.
    """
    process, _ = rig.register()
    rig.controller.handle(process, wire.Missed(step=5, param_version=4, reason="sidecar_lost", unix_ns=77))

    assert [("denied:sidecar_lost", 77)] == [
        (f"{window.state}:{window.reason}", window.asked_unix_ns) for window in rig.ledger.rows.values()
    ]


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

    assert {name: "aborted:process_lost"} == _states(rig)


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

    assert {name: "aborted:reregistered"} == _states(rig)
    assert [again] == rig.controller.processes.alive()


def test_messages_about_another_process_s_window_are_ignored(rig: Rig) -> None:
    """
    Nobody closes what is not theirs.
    """
    process, link = rig.register(100)
    other, _ = rig.register(101, rank=1)
    name = rig.open(process, link)
    rig.controller.handle(other, closed(name))

    assert State.OPENING is rig.ledger.rows[name].state
    assert 1 == rig.controller.recordings.windows.ignored["closed"]


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
    assert wire.Selected(selection="5,8-9", revision=2, stopped=True) in link.sent
    rig.controller.handle(process, closed(name, "stopped_by_user"))
    assert Reason.STOPPED_BY_USER == rig.open(process, link, step=8)
    denied = [row for row in rig.ledger.rows.values() if row.step == 8]
    assert [(State.DENIED, Reason.STOPPED_BY_USER)] == [(row.state, row.reason) for row in denied]

    rig.controller.set_selection("9", "api")

    assert wire.Selected(selection="9", revision=3, stopped=False) == link.last()
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


def test_a_restarted_sidecar_keeps_windows_that_register_again(rig: Rig) -> None:
    """
    Killed inside a window: registered again within the grace, it records on and ends ready.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, started(name))
    rig.restart()
    rig.now += 5
    rig.controller.tick()
    process, link = rig.register(open_windows=[reopened(name)])
    rig.now += 60
    rig.controller.tick()
    rig.controller.handle(process, closed(name))
    rig.done(name)

    assert {name: "ready:boundary"} == _states(rig)


def test_a_process_cannot_take_over_another_s_window(rig: Rig) -> None:
    """
    Neither by listing it when it registers.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    before = rig.ledger.rows[name]
    rig.register(101, rank=1, device_ids=["gpu1"], open_windows=[reopened(name)])

    assert before == rig.ledger.rows[name]
    assert 1 == rig.controller.recordings.windows.ignored["adopt"]


def test_a_window_that_was_never_written_down_is_taken_in(rig: Rig) -> None:
    """
    The sidecar died between the grant and the row.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.ledger.rows.clear()
    rig.restart()
    rig.register(open_windows=[reopened(name)])

    assert {name: "recording:"} == _states(rig)


@pytest.mark.parametrize(
    ("dead", "recorded", "expected"),
    [
        (False, True, "finalising:boundary"),
        (True, True, "finalising:boundary"),
        (True, False, "aborted:process_lost"),
        (False, False, "aborted:sidecar_lost"),
    ],
)
def test_after_the_grace_a_window_that_nobody_claims_is_settled(
    rig: Rig, dead: bool, recorded: bool, expected: str
) -> None:
    """
    A close record on disk is finalised; else its process is lost, or the window lost its sidecar.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, started(name))
    rig.restart()
    rig.dead.update([100] if dead else [])
    if recorded:
        rig.records[name] = closed(name)
    rig.now += 11
    rig.controller.tick()

    assert {name: expected} == _states(rig)


def test_what_was_being_finalised_is_finalised_again_after_a_restart(rig: Rig) -> None:
    """
    The job was lost with the sidecar; the record is still there.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, closed(name))
    rig.records[name] = closed(name)
    rig.restart()

    assert [name] == rig.jobs


def test_a_grant_that_never_starts_expires_and_is_stopped(rig: Rig) -> None:
    """
    A lease is not held for ever; a profiler that starts after all is told to stop.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.now += 61
    rig.controller.tick()
    rig.controller.handle(process, started(name))

    assert {name: "expired:not_started"} == _states(rig)
    assert [Reason.GRANT_TOO_LATE] * 2 == [item.reason for item in link.sent if isinstance(item, wire.Stop)]


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


def test_a_failed_finalisation_fails_the_window(rig: Rig) -> None:
    """
    Its reason is from the closed list, its detail free text.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, closed(name))
    rig.done(name, reason="no_artifact")
    rig.done(name)

    assert {name: "failed:no_artifact"} == _states(rig)
    assert replace(rig.ledger.rows[name]) == rig.controller.recordings.windows.get(name)
