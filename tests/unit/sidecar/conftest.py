"""
Fixtures of the sidecar's tests.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar import finaliser
from stepscope_sidecar.store import Store
from tests.unit.sidecar.bodies import ATTEMPT
from tests.unit.sidecar.calling import Caller, FakeController, attempt, calling
from tests.unit.sidecar.rig import Rig
from tests.unit.sidecar.stored import WAIT


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """
    Children run at the priority of this process, so that a busy machine does not keep the tests waiting; their pids.
    """
    stood_back: list[int] = []
    monkeypatch.setattr(finaliser, "_stand_back", stood_back.append)
    monkeypatch.setattr(finaliser, "_only_when_idle", lambda pid: None)
    return stood_back


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """
    Where the store lies.
    """
    return tmp_path / "stepscope.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """
    An empty store without an upstream.
    """
    store = Store.open(path, run="demo", attempt=ATTEMPT)
    yield store
    store.close(timeout=WAIT)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """
    A controller with selection 5,8-9 for all ranks.
    """
    return Rig(tmp_path)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """
    A STEPSCOPE_DIR with one attempt.
    """
    return attempt(tmp_path)


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """
    An empty run: a ``Run`` of the kind that the test's module knows by this name.
    """
    made = request.module.Run(tmp_path)
    yield made
    made.store.close(timeout=WAIT)


@pytest.fixture
def live() -> FakeController:
    """
    The controller that gets the orders.
    """
    return FakeController()


@pytest.fixture
def caller(directory: Path, live: FakeController) -> Caller:
    """
    A caller on this machine.
    """
    return calling(directory, live)
