"""
Windows hold their step and nothing else: the comparison's loop, in short, with stepscope and with verl's logic rebuilt.
"""

from pathlib import Path

import pytest

from tests.bench.windows.outcome import Outcome, run
from tests.bench.windows.setting import Scenario, Setting, Way

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def short(folder: Path, way: Way) -> Setting:
    """
    Four steps of two mini-batches each; two in a row are selected.
    """
    return Setting(
        way=way,
        mini_batches=2,
        folder=str(folder),
        steps=4,
        selected=(2, 3),
        prompts=8,
        samples=4,
        layers=2,
        warmup_steps=1,
    )


def run_short(setting: Setting) -> Outcome:
    """
    The outcome, after a look at whether the loop did what it should for the comparison to mean anything.
    """
    outcome = run(setting)

    assert ["rollouter", "trainer"] == [record.role for record in outcome.records]
    assert all(any(record.of_step(step) for step in setting.completed) for record in outcome.records)
    return outcome


def test_windows_hold_their_step_and_nothing_else(tmp_path: Path) -> None:
    """
    In each process one recording for each selected step, with all markers of that step and no other, and no validation
    and no checkpoint, although each step has both before and behind it.
    """
    outcome = run_short(short(tmp_path, Way.SPANS))
    judged = outcome.judgements

    assert {} == {name: count for name, count in outcome.errors.items() if count}
    assert {"rollouter": (1, 1), "trainer": (1, 1)} == {role: each.artifacts for role, each in judged.items()}
    # Head, tail and two mini-batches, twice.
    assert 8 == judged["trainer"].found_markers
    assert 0 < judged["rollouter"].found_markers


def test_the_comparison_sees_what_is_wrong(tmp_path: Path) -> None:
    """
    With verl's logic an exception in a selected step leaves both profilers on and both recordings unwritten.
    """
    setting = short(tmp_path, Way.VERL).ending(Scenario.EXCEPTION, folder=tmp_path)
    outcome = run_short(setting)

    assert 2 == outcome.errors["left_on"]
    assert 2 == outcome.errors["without_artifact"]
