"""
What differs between two recordings of real work, made and shown by the product: nothing, or exactly what was changed.
"""

import json

import pytest

from stepscope_sidecar import sheet
from stepscope_sidecar.show import Shown, shown

from .jobs import Job, command_line
from .programs import run_program

pytest.importorskip("torch")


STEPS, CHANGED = 4, 4


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    A run of which three steps are recorded: two alike, then one with an operator more and one that is slower.
    """
    return run_program(
        tmp_path_factory.mktemp("steady"),
        "tests.integration.steady_loop",
        str(STEPS),
        str(CHANGED),
        STEPSCOPE_STEPS="2-4",
        STEPSCOPE_LEVEL="ops",
    )


def show(job: Job, step: int) -> Shown:
    """
    What is known of the recording of ``step``.
    """
    (window,) = [window for window in job.windows if window["step"] == step]
    return shown((job.directory / "latest").resolve() / "stepscope.db", window["window"])


@pytest.mark.slow
def test_two_recordings_of_the_same_work_show_no_difference(job: Job) -> None:
    """
    Beyond the band that is stated with them; the calls are the same to the last one.
    """
    assert 0 == job.code, job.errors[-3000:]
    before, after = show(job, 2), show(job, 3)
    (difference,) = after.against.differences
    counts = [{one.name: one.count for one in found.summaries[0].operators} for found in (before, after)]

    assert before.row == after.against.window
    assert () == difference.changes
    assert ("mini-batch", 8, 8) == (str(difference.unit), difference.before, difference.after)
    assert difference.compared["operator"] > 20
    assert "noise is up to 2 times for operators" in "\n".join(sheet.lines(after, near=job.directory))
    assert counts[0] == counts[1]


def test_an_operator_added_and_one_slowed_are_exactly_what_the_difference_names(job: Job) -> None:
    """
    With their calls, and times far apart; the same for a person and for a program.
    """
    found = show(job, CHANGED)
    (difference,) = found.against.differences
    changes = {(str(change.what), change.name): change for change in difference.changes}

    assert {("added", "aten::sinc"), ("slower", "aten::erfinv")} == changes.keys()
    added, slower = changes["added", "aten::sinc"], changes["slower", "aten::erfinv"]
    assert (0, 160) == (added.count_before, added.count_after)
    assert (160, 160) == (slower.count_before, slower.count_after)
    assert slower.after_ns > 10 * slower.before_ns
    assert found.json() == json.loads(command_line(job.directory, "show", found.row.window, "--json"))
