"""
What goes wrong in other profilers of fully-asynchronous training cannot happen here: one test for each known defect.

The defects, all of one widely used trainer: a recording per mini-batch, named by the wrong counter (D1); the last
step's profilers are never stopped (D2), nor are those of a step that fails (D3); resuming stops what was not started
(D4); an update that is made twice starts twice (D5); continuous recording is not (D6); what was to be done with each
recording never is (D7); validation and checkpoints are recorded as if they were training (D8).
"""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.jobs import Job
from tests.integration.programs import check_finished, marks, recorded, run_program

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

LOOP = "tests.integration.small_loop"
STEPS, MINI_BATCHES = 6, 4


def of(job: Job, role: str) -> dict[int, dict[str, Any]]:
    """
    The windows of ``role`` by step, of which there is one each.
    """
    windows = [window for window in job.windows if window["role"] == role]
    found = {window["step"]: window for window in windows}
    assert len(windows) == len(found)
    return found


def events(job: Job, role: str) -> list[tuple[str, bool]]:
    """
    What ``role`` said, and whether a profiler was on then.
    """
    return [(row["event"], row["profiler_on"]) for row in job.rows if row["role"] == role]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    Six steps of four mini-batches at level ops; nobody knows how many there will be, and the last update is made twice.
    """
    job = run_program(
        tmp_path_factory.mktemp("whole"),
        LOOP,
        *("--steps", str(STEPS), "--mini-batches", str(MINI_BATCHES), "--unknown-end", "--last-update-twice"),
        STEPSCOPE_STEPS="1,3,6-7",
        STEPSCOPE_LEVEL="ops",
    )
    assert 0 == job.code, job.errors
    return job


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    Resumed at the selected 2; step 4 fails once; data ends in the selected step 6, when the rollouter has begun it too.
    """
    job = run_program(
        tmp_path_factory.mktemp("troubled"),
        LOOP,
        *("--resume", "2", "--steps", "7", "--fails-in", "4", "--ends-in", "6"),
        STEPSCOPE_STEPS="2,4-6",
    )
    assert 0 == job.code, job.errors
    return job


def test_d1_one_recording_per_step_named_for_its_step(whole: Job) -> None:
    """
    However many mini-batches a step has: one recording in each process, with all of them and none of another step.
    """
    trainer, rollouter = of(whole, "trainer"), of(whole, "rollouter")

    assert [1, 3, 6] == sorted(trainer)
    assert [1, 3, 6, 7] == sorted(rollouter)
    for step, window in trainer.items():
        assert {f"train {step} {number}" for number in range(MINI_BATCHES)} == marks(window)
    for step, window in rollouter.items():
        assert {f"generate {step}"} == marks(window)
    for window in whole.windows:
        assert window["step"] - 1 == window["param_version"]
        assert f"step-{window['step']:06d}" in Path(window["artifact"]).parts


def test_d2_the_last_step_is_stopped_in_every_process(troubled: Job) -> None:
    """
    No profiler is on afterwards, and both recordings are there: that of the step the trainer left, and the rollouter's,
    which nothing but its exit ends.
    """
    trainer, rollouter = of(troubled, "trainer")[6], of(troubled, "rollouter")[6]

    assert ("data ended", False) in events(troubled, "trainer")
    assert ("rollouter ended with 0", False) in events(troubled, "trainer")
    assert ("exception", "not_published") == (trainer["reason"], trainer["incomplete_reason"])
    assert "process_exit" == rollouter["reason"]
    assert [False, False] == [trainer["complete"], rollouter["complete"]]
    assert {"train 6 0"} == marks(trainer)
    assert {"generate 6"} == marks(rollouter)


def test_d3_an_exception_stops_the_profiler_and_later_steps_record(troubled: Job) -> None:
    """
    An update runs out of memory, the loop goes on with the same step: its one window has ended, the next one is whole.
    """
    failed, later = (of(troubled, "trainer")[step] for step in (4, 5))

    assert ("failed", False) in events(troubled, "trainer")
    assert ("ready", "exception", False) == (failed["state"], failed["reason"], failed["complete"])
    assert ("ready", "boundary", True) == (later["state"], later["reason"], later["complete"])
    assert {"train 5 0", "train 5 1"} == marks(later)
    assert ["ready", "ready"] == [of(troubled, "rollouter")[step]["state"] for step in (4, 5)]


def test_d4_resuming_stops_nothing_that_was_not_started(troubled: Job) -> None:
    """
    Resumed at a version that is selected as a step: said, and otherwise as if it were not.
    """
    assert [4, 5, 6] == sorted(of(troubled, "trainer"))
    assert [4, 5, 6] == sorted(of(troubled, "rollouter"))
    assert {"ready": 6} == troubled.states()
    assert "selected steps 2 cannot occur" in troubled.errors
    assert ("published", False) == events(troubled, "trainer")[0]


def test_d5_the_same_version_twice_starts_nothing_twice(whole: Job) -> None:
    """
    The update at the end of the run repeats the version: the rollouter's window of the step has ended, none follows.
    """
    rollouter = of(whole, "rollouter")

    assert ("published again", False) in events(whole, "trainer")
    assert ("loading", False) == events(whole, "rollouter")[-2]
    assert ("told to end", False) == events(whole, "rollouter")[-1]
    assert [1, 3, 6, 7] == sorted(rollouter)
    assert "boundary" == rollouter[7]["reason"]


def test_d6_consecutive_steps_are_one_recording_where_that_is_asked_for(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """
    Continuous recording goes on from step 1 into step 2 in both processes, and step 4 has a recording of its own.
    """
    job = run_program(tmp_path_factory.mktemp("continuous"), LOOP, STEPSCOPE_STEPS="1-2,4", STEPSCOPE_CONTINUOUS="1")

    assert 0 == job.code, job.errors
    for role, kind in (("trainer", "train"), ("rollouter", "generate")):
        found = of(job, role)
        assert [(1, 2), (4, 4)] == [(step, window["last_step"]) for step, window in sorted(found.items())]
        assert {"1", "2"} == {mark.split()[1] for mark in marks(found[1]) if mark.startswith(kind)}
        assert {"4"} == {mark.split()[1] for mark in marks(found[4]) if mark.startswith(kind)}
    check_finished(job)


def test_d7_every_window_is_finished_the_last_one_too(whole: Job, troubled: Job) -> None:
    """
    Packed, hashed, linked both ways and exported as a span, for windows that ended by boundary, exception and exit.
    """
    check_finished(whole)
    check_finished(troubled)


def test_d8_no_window_holds_validation_or_a_checkpoint(whole: Job) -> None:
    """
    Neither that before training, in the recording of step 1, nor those between the steps.
    """
    apart = [*whole.named("validate"), *whole.named("checkpoint.save")]

    assert 1 + 2 * STEPS <= len(apart)
    for window in whole.windows:
        assert not {name for name in marks(window) if not name.startswith(("train", "generate"))}
        assert not [event for event in recorded(window)["traceEvents"] if str(event.get("name")).startswith("validate")]
        for span in apart:
            if (window["role"], window["rank"]) == (span["attributes"]["rl.role"], span["attributes"]["rl.rank"]):
                before, after = window["opened_unix_ns"], window["closed_unix_ns"]
                assert span["end_unix_ns"] <= before or after <= span["start_unix_ns"]
