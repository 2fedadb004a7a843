"""
What follows from a window's messages: grants and denials, restarts, deadlines, what finalising answers.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from stepscope import wire
from stepscope.names import Reason, State

from .rig import Rig, closed, reopened, started


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
    assert 500 == grant.caps.bytes


def test_a_boundary_on_another_thread_falls_back_to_ops(rig: Rig) -> None:
    """
    The plan's level is granted; the profiler knows its own rule, and its process says what it uses instead.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    grant = link.last()
    rig.controller.handle(process, replace(started(name), level="ops", level_fallback="spans"))
    row = rig.ledger.rows[name]

    assert isinstance(grant, wire.Grant)
    assert "spans" == grant.level
    assert ("ops", "spans") == (row.level, row.level_fallback)


def test_a_level_that_was_fallen_back_from_is_told_again(rig: Rig) -> None:
    """
    Where the sidecar was away when the profiler started, whether or not it remembers the window.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.register(open_windows=[replace(reopened(name), level="ops", level_fallback="spans")])
    known = rig.ledger.rows[name]
    rig.restart()
    rig.register(open_windows=[replace(reopened("unknown", 8), level="ops", level_fallback="spans")])
    unknown = rig.ledger.rows["unknown"]

    assert [("ops", "spans")] * 2 == [(row.level, row.level_fallback) for row in (known, unknown)]


def test_a_denied_window_is_a_row_and_asking_again_is_not(tmp_path: Path) -> None:
    """
    A person can see why; a step entered twice is no second window.
    """
    rig = Rig(tmp_path, STEPSCOPE_RANKS="0")
    process, link = rig.register(rank=1)

    assert [Reason.RANK_NOT_SELECTED] * 2 == [rig.open(process, link), rig.open(process, link)]
    assert ["denied:rank_not_selected"] == list(rig.states().values())


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
    assert ["opening:", "denied:duplicate"] == list(rig.states().values())


def test_a_window_missed_while_there_was_no_sidecar_is_a_row(rig: Rig) -> None:
    """
    The agent denied it itself and tells later.
    """
    process, _ = rig.register()
    rig.controller.handle(process, wire.Missed(step=5, param_version=4, reason="sidecar_lost", unix_ns=77))

    assert [("denied:sidecar_lost", 77)] == [
        (f"{window.state}:{window.reason}", window.asked_unix_ns) for window in rig.ledger.rows.values()
    ]


@pytest.mark.parametrize(
    ("reason", "states"),
    [("sidecar_lost", ["aborted:sidecar_lost"]), ("rank_not_selected", ["recording:"]), ("odd", ["recording:"])],
)
def test_only_a_lost_grant_ends_the_window_that_was_granted(rig: Rig, reason: str, states: list[str]) -> None:
    """
    A denial that is told again, after a window of that step was granted, is over with.
    """
    process, link = rig.register()
    rig.controller.handle(process, started(rig.open(process, link)))
    rig.controller.handle(process, wire.Missed(step=5, param_version=4, reason=reason, unix_ns=77))

    assert states == list(rig.states().values())


def test_a_denial_that_is_told_again_is_one_row(rig: Rig) -> None:
    """
    To the sidecar that denied, and to one that takes over, whether that finds it in the store or not.
    """
    process, link = rig.register()
    rig.controller.stop("api")
    assert "stopped_by_user" == rig.open(process, link)
    for _ in range(2):
        rig.controller.handle(process, wire.Missed(step=5, param_version=4, reason="stopped_by_user", unix_ns=77))
    rig.restart()
    process, _ = rig.register()
    rig.controller.handle(process, wire.Missed(step=5, param_version=4, reason="stopped_by_user", unix_ns=77))
    kept = list(rig.states().values())
    rig.ledger.rows.clear()
    rig.restart()
    process, _ = rig.register()
    rig.controller.handle(process, wire.Missed(step=5, param_version=4, reason="stopped_by_user", unix_ns=77))

    assert ["denied:stopped_by_user"] == kept == list(rig.states().values())


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

    assert {name: "ready:boundary"} == rig.states()


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

    assert {name: "recording:"} == rig.states()


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

    assert {name: expected} == rig.states()


def test_what_a_killed_process_never_started_is_lost_with_it(rig: Rig) -> None:
    """
    Also where its sidecar was killed at the same time; of one that lives, it was not started.
    """
    process, link = rig.register()
    other, other_link = rig.register(101, rank=1)
    lost, unused = rig.open(process, link), rig.open(other, other_link)
    rig.restart()
    rig.dead.add(100)
    rig.now += 11.0
    rig.controller.tick()

    assert {lost: "aborted:process_lost", unused: "expired:not_started"} == rig.states()


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

    assert {name: "expired:not_started"} == rig.states()
    assert [Reason.GRANT_TOO_LATE] * 2 == [item.reason for item in link.sent if isinstance(item, wire.Stop)]


def test_a_failed_finalisation_fails_the_window(rig: Rig) -> None:
    """
    Its reason is from the closed list, its detail free text.
    """
    process, link = rig.register()
    name = rig.open(process, link)
    rig.controller.handle(process, closed(name))
    rig.done(name, reason="no_artifact")
    rig.done(name)

    assert {name: "failed:no_artifact"} == rig.states()
    assert replace(rig.ledger.rows[name]) == rig.controller.recordings.windows.get(name)


def test_what_a_failure_says_is_kept_whatever_the_file_s_name(rig: Rig) -> None:
    """
    Names of files may hold bytes that are no text; stores and reports take text alone.
    """
    process, link = rig.register()
    window = rig.open(process, link)
    rig.controller.recordings.broken(window, Reason.START_ERROR, "no such file: 'x/\udcff.json'")

    assert "no such file: 'x/\\udcff.json'" == rig.ledger.rows[window].detail


def test_a_process_started_again_in_the_place_of_a_killed_one_is_recorded(rig: Rig) -> None:
    """
    In the same step, once; a restarted sidecar knows both windows, and each process's word is of its own.
    """
    first, first_link = rig.register(100)
    lost = rig.open(first, first_link)
    rig.controller.handle(first, started(lost))
    rig.dead.add(100)
    rig.controller.gone(first)
    second, second_link = rig.register(101)
    name = rig.open(second, second_link)
    again = rig.open(second, second_link)
    rig.restart()
    former = next(process for process in rig.controller.processes if process.pid == 101)
    second, _ = rig.register(101, open_windows=[reopened(name)], former=former)
    rig.controller.handle(second, wire.Missed(step=5, param_version=4, reason=Reason.SIDECAR_LOST, unix_ns=1))

    assert Reason.DUPLICATE == again
    assert {lost: "aborted:process_lost", name: "aborted:sidecar_lost"} == rig.states()


def test_a_process_whose_window_was_given_up_has_no_second_one(rig: Rig) -> None:
    """
    Though nobody knows any more what became of it; nor has another in its place, while it may still record.
    """
    first, first_link = rig.register(100)
    rig.controller.recordings.lost(rig.open(first, first_link), Reason.PROCESS_LOST)
    second, second_link = rig.register(102, rank=1)
    rig.controller.recordings.lost(rig.open(second, second_link), Reason.SIDECAR_LOST)
    third, third_link = rig.register(103, rank=1)

    assert Reason.DUPLICATE == rig.open(first, first_link)
    assert Reason.DUPLICATE == rig.open(third, third_link)
