"""
The comparison of ways to profile: what its columns say of known records and recordings.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.windows import columns, recordings, report, truth, verl
from tests.bench.windows.columns import Seconds
from tests.bench.windows.outcome import Column, Outcome
from tests.bench.windows.recordings import Recording
from tests.bench.windows.setting import Scenario, Setting, Way, load
from tests.bench.windows.truth import Log, Record

HEAD, BODY, TAIL = (truth.work(3, what) for what in ("head", "mini-batch-0", "tail"))
OTHER = truth.work(4, "head")
CHECKPOINT = truth.checkpoint(3, "save")

RECORD = Record(role="trainer", rank=0, begun=frozenset({3, 4}), markers=frozenset({HEAD, BODY, TAIL, OTHER}))


def recording(*markers: str, meant: int = 3, named: int | None = 3, role: str = "trainer") -> Recording:
    """
    A recording with ``markers`` in it.
    """
    return Recording(role=role, rank=0, meant=meant, named=named, markers=frozenset(markers))


def event(name: str, *, begin: float, length: float = 10.0, kind: str = "user_annotation", thread: int = 1) -> Any:
    """
    An event of a recording.
    """
    return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": length, "pid": 7, "tid": thread}


def errors(*found: Recording) -> dict[str, int]:
    """
    The errors of ``found`` for step 3 that are not 0.
    """
    judged = columns.judge(RECORD, found, selected=(3,))
    return {name: count for name, count in judged.errors.items() if count}


def test_an_exact_recording_has_no_errors() -> None:
    """
    One recording, named for its step, with all of it and nothing else; those of other processes don't count.
    """
    assert {} == errors(recording(HEAD, BODY, TAIL), recording(OTHER, role="rollouter"))


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ({"without_artifact": 1, "missing": 3}, []),
        ({"missing": 2}, [recording(HEAD)]),
        ({"of_other_steps": 1}, [recording(HEAD, BODY, TAIL, OTHER)]),
        ({"after_update": 1}, [recording(HEAD, BODY, TAIL, CHECKPOINT)]),
        ({"misnamed": 1}, [recording(HEAD, BODY, TAIL, named=9)]),
        ({"misnamed": 1}, [recording(HEAD, BODY, TAIL, named=None)]),
        ({"more_than_one": 1}, [recording(HEAD, BODY), recording(TAIL)]),
        ({"unexpected": 1}, [recording(HEAD, BODY, TAIL), recording(meant=4, named=4)]),
    ],
)
def test_each_kind_of_error_is_counted_as_itself(expected: dict[str, int], found: list[Recording]) -> None:
    """
    What is wrong with a recording is counted once, under its own name.
    """
    assert expected == errors(*found)


def test_a_step_that_never_began_needs_no_recording() -> None:
    """
    A selected step that the process did not come to is not missing.
    """
    judged = columns.judge(RECORD, [recording(HEAD, BODY, TAIL)], selected=(3, 9))

    assert (1,) == judged.artifacts
    assert not any(judged.errors.values())


def test_a_marker_counts_when_an_operator_is_in_it() -> None:
    """
    Where operators are recorded, an annotation of which none is left is not counted; where none are, it is.
    """
    trace = {
        "traceEvents": [
            event(HEAD, begin=100),
            event("aten::add", begin=105, length=1, kind="cpu_op"),
            event(BODY, begin=200),
            event("aten::add", begin=205, length=1, kind="cpu_op", thread=2),
            event("train.update_actor #0000000000000001", begin=90),
            {"ph": "M", "name": "thread_name"},
        ]
    }

    assert frozenset({HEAD}) == recordings.markers(trace, operators=True)
    assert frozenset({HEAD, BODY}) == recordings.markers(trace, operators=False)


def test_times_are_told_per_start_per_step_and_per_recording() -> None:
    """
    A stall is what a selected step has beyond the others (but the first); a step with two recordings has two.
    """
    record = replace(
        RECORD,
        seconds={
            truth.ARMED: {3: 0.5, 6: 0.25},
            truth.STARTS: {3: 2.0, 6: 2.0},
            truth.STALL: {1: 9.0, 2: 0.125, 3: 1.125, 4: 0.125, 6: 2.125},
            truth.UPDATE: {1: 9.0, 2: 1.0, 3: 3.0, 4: 0.5},
        },
    )
    found = [recording(meant=step) for step in (3, 3, 6, 6)]

    assert Seconds(median=0.1875, most=0.25) == columns.armed(record, selected=(3, 6))
    assert Seconds(median=1.5, most=2.0) == columns.stall_per_step(record, selected=(3, 6))
    assert Seconds(median=0.75, most=1.0) == columns.stall_per_window(record, found, selected=(3, 6))
    assert Seconds(median=1.5, most=2.5) == columns.update_delay(record, touched=frozenset({2, 3}))


def test_what_a_process_logs_is_read_back(tmp_path: Path) -> None:
    """
    Steps, markers, seconds and what is on at the end survive the file.
    """
    log = Log(role="trainer", rank=0)
    log.begin(3)
    log.point(HEAD)
    log.armed(step=3, after=0.5, stall=0.25)
    log.write(tmp_path, left_on=truth.profilers_on(), stops_without_start=1)
    seconds: dict[str, dict[int, float]] = {truth.ARMED: {3: 0.5}, truth.STARTS: {3: 1}, truth.STALL: {3: 0.25}}

    assert [
        Record(
            role="trainer",
            rank=0,
            begun=frozenset({3}),
            markers=frozenset({HEAD}),
            seconds=seconds,
            left_on=0,
            stops_without_start=1,
        )
    ] == list(truth.read(tmp_path))


class Calls:
    """
    A profiler that writes down how it is called.
    """

    def __init__(self) -> None:
        """
        Nothing was called.
        """
        self.made: list[object] = []

    def start(self, *, meant: int) -> None:
        """
        Started for a step.
        """
        self.made.append(meant)

    def stop(self, *, name: str = "") -> None:
        """
        Stopped, with a name for the file.
        """
        self.made.append(name)


def test_verls_logic_records_each_mini_batch_by_its_counter() -> None:
    """
    Step 2 of 4 mini-batches is four recordings, named for the mini-batches 5 to 8.
    """
    calls: Any = Calls()
    trainer = verl.Trainer(calls, selected=(2,), mini_batches=4, log=Log(role="trainer", rank=0))
    for step in (1, 2, 3):
        for number in range(4):
            trainer.begin()
            if number == 3:
                trainer.version = step
            trainer.end(step=step)

    assert [2, "step5", 2, "step6", 2, "step7", 2, "step8"] == calls.made


def test_a_setting_survives_its_text_and_knows_its_endings(tmp_path: Path) -> None:
    """
    What a run is told is what was meant; its short runs end before, in or after the selected steps.
    """
    whole = Setting(way=Way.OPS, mini_batches=4, folder=str(tmp_path))
    raised = whole.ending(Scenario.EXCEPTION, folder=tmp_path)
    last = whole.ending(Scenario.LAST_STEP, folder=tmp_path)
    resumed = whole.ending(Scenario.RESUME, folder=tmp_path, checkpoints="kept")

    assert whole == load(whole.dump())
    assert frozenset({2, 3, 5, 6, 7, 9, 10}) == whole.touched
    assert ((1,), (1, 2), (3,)) == (raised.completed, last.completed, resumed.completed)
    assert ("2", "kept") == (resumed.config.resume, resumed.config.checkpoints)


def test_the_table_sets_ours_against_verls(tmp_path: Path) -> None:
    """
    A column for each way, with the ratio of stalls under ours, and errors named with their run.
    """
    found = []
    for way, stall, wrong in ((Way.NONE, 0.0, 0), (Way.VERL, 1.0, 0), (Way.SPANS, 0.125, 1)):
        records = [
            replace(RECORD, role=role, seconds={truth.STALL: {2: 0.0, 3: stall}}, left_on=wrong)
            for role in ("trainer", "rollouter")
        ]
        ours = [recording(HEAD, BODY, TAIL, role=role) for role in ("trainer", "rollouter")]
        setting = Setting(way=way, mini_batches=1, folder=str(tmp_path), selected=(3,))
        found.append(
            Column(whole=Outcome(setting=setting, records=records, recordings=[] if way is Way.NONE else ours))
        )
    lines = report.table(found).splitlines()

    assert "|  | no profiling | verl's logic | stepscope `spans` |" == lines[0]
    assert "| named for the right step, trainer | - | 1 of 1 | 1 of 1 |" in lines
    assert "| stall per window, trainer, against verl's | - | - | 0.125x |" in lines
    assert {"left_on (whole)": 2} == found[2].errors
