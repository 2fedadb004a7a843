"""
Fixtures of more than one module.
"""

from pathlib import Path

import pytest

from .jobs import Job
from .place import Place, placed
from .programs import run_program, settle


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """
    An attempt with steps 5 and 8-9 selected.
    """
    return placed(tmp_path)


@pytest.fixture
def step_two(place: Place) -> None:
    """
    Step 2 of it is selected instead.
    """
    place.env["STEPSCOPE_STEPS"] = "2"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    A real run of three steps that has ended, of which step 2 was recorded. For reading alone.
    """
    job = run_program(
        tmp_path_factory.mktemp("finished"), "tests.integration.small_loop", "--steps", "3", STEPSCOPE_STEPS="2"
    )
    assert 0 == job.code, job.errors
    settle(job)
    return job
