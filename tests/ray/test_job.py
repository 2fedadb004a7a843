"""
``ray job submit``, with the command of the documentation.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import documented
from tests.integration.jobs import Job
from tests.integration.programs import PROGRAM_DEADLINE, settle
from tests.ray.head import Head, head

pytest.importorskip("aiohttp_cors", reason='ray job submit needs Ray\'s dashboard: pip install "ray[default]"')
pytest.importorskip("torch")

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SHARED = "/shared/runs"
"""The folder that the page's command names."""


@pytest.fixture
def running() -> Iterator[Head]:
    """
    A Ray that takes jobs.
    """
    with head() as found:
        yield found


def test_the_documented_command_submits_the_documented_program(tmp_path: Path, running: Head) -> None:
    """
    What its runtime environment sets reaches all workers; each role's first rank is recorded in the step selected, and
    the sidecar that one of them started ends by itself.
    """
    program = documented.write(tmp_path)
    runs = tmp_path / "runs"
    command = documented.command("ray job submit")
    assert SHARED in command

    done = subprocess.run(
        ["bash", "-euc", command.replace(SHARED, str(runs))],
        cwd=program.parent,
        env={**running.environment, "RAY_ADDRESS": running.address},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_DEADLINE,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    job = Job(runs, done.returncode, done.stdout, done.stderr)
    settle(job)
    documented.check(job)
    assert [(role, 2, "ready", "boundary", True) for role in ("store", "trainer", "worker")] == sorted(
        documented.ended(job)
    )
