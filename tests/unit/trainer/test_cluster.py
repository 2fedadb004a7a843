"""
The Ray of the reference job.
"""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepscope_trainer import cluster


class Standin(ModuleType):
    """
    Stands in for the module ``ray``: notes how it is started.
    """

    def __init__(self, *, initialized: bool) -> None:
        super().__init__("ray")
        self.started: list[dict[str, Any]] = []
        self.ended = 0
        self._initialized = initialized

    def is_initialized(self) -> bool:
        """
        Whether somebody has started it before.
        """
        return self._initialized

    def init(self, **options: Any) -> None:
        """
        Start it.
        """
        self.started.append(options)

    def shutdown(self) -> None:
        """
        End it.
        """
        self.ended += 1


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What is set there by default is taken back.
    """
    for name in ("RAY_AUTH_MODE", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, os.environ.get(name, "0"))


def test_the_job_has_a_ray_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Also where ``RAY_ADDRESS`` names another, which would refuse what is asked of it; its folder goes with it.
    """
    ray = Standin(initialized=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")

    with cluster.started():
        [options] = ray.started
        folder = Path(options["_temp_dir"])
        there = folder.is_dir()

    assert ("local", True, False, 1) == (options["address"], there, folder.exists(), ray.ended)


def test_a_ray_that_the_caller_has_started_is_used_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Nothing is started, and nothing ended.
    """
    ray = Standin(initialized=True)
    monkeypatch.setitem(sys.modules, "ray", ray)

    with cluster.started():
        pass

    assert ([], 0) == (ray.started, ray.ended)
