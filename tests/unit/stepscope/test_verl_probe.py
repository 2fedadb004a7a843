"""
What is found in a verl that is only read: the stand-in package here, released versions in ``tests/verl``.
"""

import importlib.machinery
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from stepscope.integrations.verl import probe
from stepscope.integrations.verl.targets import Target
from tests.unit.stepscope import verl_standin


def _target(where: str, *, module: str = verl_standin.TRAINER_MODULE, override: bool = False) -> Target:
    return Target(module=module, where=where, wrap=lambda original: original, needs=("batch",), override=override)


def test_each_place_is_found_or_why_not(tmp_path: Path) -> None:
    """
    The module, the class, the method and the parameters that the wrapper reads.
    """
    verl_standin.make(tmp_path)
    wanted = [
        _target("PPOTrainer.fit", module="verl.nowhere"),
        _target("Nobody.fit"),
        _target("PPOTrainer.nothing"),
        _target("PPOTrainer._update_actor"),
        _target("PPOTrainer.also_nothing", override=True),
        Target(module=verl_standin.TRAINER_MODULE, where="PPOTrainer.fit", wrap=lambda original: original),
    ]

    assert [
        "there is no such module",
        "there is no Nobody",
        "there is no nothing",
        "_update_actor does not take batch",
        "",
    ] == [finding.why for finding in probe.look(tmp_path, wanted)]


def _install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.machinery.PathFinder.find_spec("verl", [str(folder)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if folder.is_dir() else None)


def test_the_report_says_that_verl_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Then there is nothing to look for.
    """
    _install(tmp_path / "nothing", monkeypatch)

    assert "verl is not installed" == probe.report({})["inactive"]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "no STEPSCOPE_ variable is set"),
        ({"STEPSCOPE_STEPS": "3", "STEPSCOPE_DISABLED": "1"}, "STEPSCOPE_DISABLED is set"),
        ({"STEPSCOPE_STEPS": "3", "VERL_USE_EXTERNAL_PLUGINS": "none"}, "VERL_USE_EXTERNAL_PLUGINS=none keeps"),
        ({"STEPSCOPE_STEPS": "3", "VERL_USE_EXTERNAL_PLUGINS": "a, b"}, "VERL_USE_EXTERNAL_PLUGINS=a, b keeps"),
        ({"STEPSCOPE_STEPS": "3", "VERL_USE_EXTERNAL_PLUGINS": "a,stepscope"}, ""),
    ],
)
def test_the_report_says_why_nothing_would_be_instrumented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], reason: str
) -> None:
    """
    verl's own switch, ours, or nothing configured.
    """
    _install(verl_standin.make(tmp_path), monkeypatch)
    point = importlib.metadata.EntryPoint(name="stepscope", group=probe.GROUP, value="x")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])

    found = probe.report(environment)

    assert found["inactive"].startswith(reason)
    assert bool(found["inactive"]) is bool(reason)
    assert found["installed"]
    assert found["found"] >= 3


def test_the_report_says_that_no_entry_point_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As where the package is only on the path.
    """
    _install(verl_standin.make(tmp_path), monkeypatch)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])

    assert "its entry point" in probe.report({"STEPSCOPE_STEPS": "3"})["inactive"]
