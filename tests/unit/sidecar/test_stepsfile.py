"""
The watched file of steps: when its content counts, and what is said of one that cannot be used.
"""

import logging
import os
from pathlib import Path

import pytest

from stepscope import wire
from stepscope.selection import Selection
from stepscope_sidecar.stepsfile import MAX_BYTES, StepsFile

from .rig import Rig


def looks(file: StepsFile, times: int = 2) -> str | None:
    """
    The selection that ``times`` looks find, the last one that they do.
    """
    found = [selection.text for _ in range(times) if (selection := file.look()) is not None]
    return found[-1] if found else None


def test_what_it_says_is_taken_once_two_looks_agree(tmp_path: Path) -> None:
    """
    While it is being written it is empty for a moment: that is no order.
    """
    path = tmp_path / "steps"
    path.write_text("3\n")
    file = StepsFile(path)
    first = file.first(since_unix_ns=0)
    path.write_text("")
    writing = file.look()
    path.write_text("5,8-9\n")
    written = file.look()

    assert first == Selection.parse("3")
    assert (None, None) == (writing, written)
    assert "5,8-9" == looks(file, 1)
    assert looks(file) is None


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("3,10-12", "3,10-12"),
        ("3\n10-12\n", "3,10-12"),
        ("# nightly\n3,  # the first\n\nevery:5@1\r\nv7\n", "3,every:5@1,v7"),
        ("", ""),
        ("# nothing\n", ""),
    ],
)
def test_steps_are_written_on_one_line_or_on_several(tmp_path: Path, text: str, steps: str) -> None:
    """
    What follows a # is for people; a file that names none selects none.
    """
    path = tmp_path / "steps"
    path.write_text(text)

    found = StepsFile(path).first(since_unix_ns=0)

    assert found is not None
    assert steps == found.text


def test_a_link_that_is_turned_to_another_file_is_followed(tmp_path: Path) -> None:
    """
    A mounted ConfigMap changes so: file, to ..data/file, to a folder that is new each time.
    """
    for name, steps in (("..1", "3"), ("..2", "4")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps").write_text(steps)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "steps").symlink_to("..data/steps")
    file = StepsFile(tmp_path / "steps")
    file.first(since_unix_ns=0)
    (tmp_path / "..next").symlink_to("..2")
    (tmp_path / "..next").rename(tmp_path / "..data")

    assert "4" == looks(file)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"3;4", "'3;4' cannot be read"),
        (b"9-7", "9 is after 7"),
        (b"\xff\xfe", "not text"),
        (b"3," * MAX_BYTES, "longer than"),
    ],
)
def test_bad_content_is_told_once_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, said: str
) -> None:
    """
    With the setting, the value and the reason, as long as it is there; good content ends it.
    """
    caplog.set_level(logging.WARNING)
    path = tmp_path / "steps"
    path.write_bytes(content)
    file = StepsFile(path)
    found = looks(file, 4)
    trouble, warned = file.trouble, [record.message for record in caplog.records]
    path.write_text("6")
    after = looks(file)

    assert found is None
    assert said in trouble
    assert f"STEPSCOPE_STEPS_FILE={path}" in trouble
    assert [trouble] == warned
    assert ("6", "") == (after, file.trouble)


def test_a_file_that_is_removed_leaves_the_selection(tmp_path: Path) -> None:
    """
    And is no news when it comes back as it was.
    """
    path = tmp_path / "steps"
    path.write_text("3")
    file = StepsFile(path)
    file.first(since_unix_ns=0)
    path.unlink()
    gone, trouble = looks(file), file.trouble
    path.write_text("3")
    back = looks(file)
    path.write_text("4")

    assert (None, None) == (gone, back)
    assert "No such file" in trouble
    assert "4" == looks(file)


def test_what_a_person_said_since_it_was_written_holds(tmp_path: Path) -> None:
    """
    A sidecar that starts again finds both: the later one wins.
    """
    path = tmp_path / "steps"
    path.write_text("3")
    os.utime(path, ns=(5, 1000))

    assert StepsFile(path).first(since_unix_ns=2000) is None
    assert StepsFile(path).first(since_unix_ns=500) == Selection.parse("3")


def test_the_file_and_people_override_the_environment_and_each_other(tmp_path: Path) -> None:
    """
    The later wins; processes are told each time, and the first registration's environment does not come back.
    """
    rig = Rig(tmp_path)
    rig.controller.follow(Selection.parse("7"), tmp_path / "steps")
    _, link = rig.register(environment={"STEPSCOPE_STEPS": "5"})
    began = rig.controller.plan.selection.text
    rig.controller.set_selection("9", "api")
    ordered = rig.controller.plan
    rig.controller.follow(Selection.parse("11"), tmp_path / "steps")
    rig.controller.follow(Selection.parse("11"), tmp_path / "steps")

    told = [(item.selection, item.revision, item.source) for item in link.sent if isinstance(item, wire.Selected)]
    assert "7" == began
    assert [("9", 3, "api"), ("11", 4, "file")] == told
    assert f"steps file {tmp_path / 'steps'}" == rig.controller.plan.source
    assert ordered.ordered_unix_ns == rig.controller.plan.ordered_unix_ns


@pytest.mark.parametrize("steps", ["", "5"])
def test_a_file_that_says_what_is_selected_overrides_the_environment_too(tmp_path: Path, steps: str) -> None:
    """
    A sidecar in a container of its own has no steps, nor has an empty file: the process's do not come in between.
    """
    rig = Rig(tmp_path, STEPSCOPE_STEPS=steps)
    rig.controller.follow(Selection.parse(steps), tmp_path / "steps")
    _, link = rig.register(environment={"STEPSCOPE_STEPS": "8"})
    answer = link.sent[0]

    assert isinstance(answer, wire.Registered)
    assert steps == answer.selection
    assert f"steps file {tmp_path / 'steps'}" == rig.controller.plan.source


def test_steps_that_have_begun_are_named_when_they_are_selected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Those that all processes have entered, and those beyond the run's end; before anybody has entered one, none.
    """
    rig = Rig(tmp_path)
    fast, _ = rig.register(total_steps=20)
    slow, _ = rig.register(101, rank=1, total_steps=20)
    rig.register(102, role="driver", total_steps=20)
    before = rig.controller.too_late()
    rig.controller.handle(fast, wire.Version(step=5, param_version=4))
    rig.controller.handle(slow, wire.Version(step=4, param_version=3))
    caplog.set_level(logging.WARNING)
    rig.controller.follow(Selection.parse("3-6,21"), tmp_path / "steps")

    assert [] == before
    assert ["selected steps 3-4, 21 cannot occur any more: step 4 has begun"] == rig.controller.too_late()
    assert "3-4, 21 cannot occur" in caplog.text


def test_the_file_takes_no_stop_back(tmp_path: Path) -> None:
    """
    What a person switched off, a person switches on; the steps hold then.
    """
    rig = Rig(tmp_path)
    process, link = rig.register()
    rig.controller.stop("api")
    rig.controller.follow(Selection.parse("11"), tmp_path / "steps")
    stopped = rig.controller.plan

    assert ("11", True, "api") == (stopped.selection.text, stopped.stopped, stopped.stopped_by)
    assert "stopped_by_user" == rig.open(process, link, 11)


def test_a_file_that_is_back_is_no_trouble(tmp_path: Path) -> None:
    """
    Though its content is no news; content that cannot be used is trouble still.
    """
    path = tmp_path / "steps"
    path.write_text("3")
    file = StepsFile(path)
    file.first(since_unix_ns=0)
    path.unlink()
    file.look()
    gone = file.trouble
    path.write_text("3")
    file.look()
    file.look()

    assert "No such file" in gone
    assert "" == file.trouble
    path.write_text("three")
    file.look()
    file.look()
    assert "three" in file.trouble


def test_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    """
    It is not waited for a writer; the file that takes its place counts.
    """
    path = tmp_path / "steps"
    os.mkfifo(path)
    file = StepsFile(path)
    first = file.first(since_unix_ns=0)
    trouble = file.trouble
    path.unlink()
    path.write_text("3")

    assert first is None
    assert "no plain file" in trouble
    assert "3" == looks(file)
    assert "" == file.trouble
