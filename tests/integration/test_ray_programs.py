"""
Whole programs on Ray: the one of the documentation as it stands, and patterns that everybody writes.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import documented, ray_cluster
from tests.integration.documented import lineage
from tests.integration.jobs import Job, environment
from tests.integration.programs import PROGRAM_DEADLINE, ROOT, run_program, settle

pytest.importorskip("ray")

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """
    A Ray that runs already.
    """
    with ray_cluster.running() as found:
        yield found


def finished(command: list[str], *, folder: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """
    ``command``, when it has ended well.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROGRAM_DEADLINE,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done


def alone(directory: Path, *arguments: str, **settings: str) -> Job:
    """
    Run Python with ``arguments``, not under ``stepscope run``, until its sidecar has ended too.
    """
    done = finished([sys.executable, *arguments], folder=ROOT, env=environment(directory / "runs", **settings))
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    job = Job(directory / "runs", done.returncode, done.stdout, done.stderr, rows=rows)
    settle(job)
    return job


def test_the_documented_program_runs_as_it_stands(tmp_path: Path) -> None:
    """
    By the page's own commands, with a Ray of its own; its sidecar ends by itself.
    """
    documented.write(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**environment(tmp_path / "runs"), "PATH": path}
    done = finished(["bash", "-euc", documented.command("stepscope spans")], folder=tmp_path, env=env)

    assert "store.add" in done.stdout
    job = Job(tmp_path / "runs", done.returncode, done.stdout, done.stderr)
    settle(job)
    documented.check(job)


def test_it_runs_on_a_cluster_that_knows_nothing_of_the_run(tmp_path: Path, address: str) -> None:
    """
    Run, folder and selection reach the workers all the same; one worker is recorded, in the step that was selected.
    """
    pytest.importorskip("torch")
    program = str(documented.write(tmp_path))
    job = alone(tmp_path, program, RAY_ADDRESS=address, STEPSCOPE_STEPS="2", STEPSCOPE_RANKS="worker=0")

    documented.check(job)
    assert [("worker", 2, "ready", "boundary", True)] == documented.ended(job)


def test_the_sidecar_outlives_the_actor_that_started_it(tmp_path: Path) -> None:
    """
    Ray kills the children of a worker that ends; the next actor of the run finds the same sidecar, which is nobody's.
    """
    job = alone(tmp_path, "-m", "tests.integration.ray_ends")
    first, second = job.rows

    assert first == second
    assert not first["ours"]
    assert {0: 1, 1: 1} == Counter(span["attributes"]["rl.rank"] for span in job.named("work"))


def test_a_parameter_server_has_the_right_parents(tmp_path: Path, address: str) -> None:
    """
    Gradients and their application lie below the iteration; the server's part of the step ends with the application.
    """
    job = run_program(tmp_path, "tests.integration.ray_parameter_server", RAY_ADDRESS=address)
    steps = (1, 2, 3)

    assert 0 == job.code, job.errors
    assert Counter({(step, "iteration"): 2 for step in steps}) == lineage(job, "gradients")
    assert Counter({(step, "iteration"): 1 for step in steps}) == lineage(job, "apply")
    assert [1, 2, 3] == sorted(
        span["attributes"]["rl.step"]
        for span in job.named("rl.step.process")
        if span["attributes"]["rl.role"] == "server"
    )


def test_what_goes_through_a_queue_has_the_right_parents(tmp_path: Path, address: str) -> None:
    """
    Each consumption lies below the production of its item, though a third actor held it in between.
    """
    job = run_program(tmp_path, "tests.integration.ray_queue", RAY_ADDRESS=address)

    assert 0 == job.code, job.errors
    assert Counter({(step, "round"): 6 for step in (1, 2)}) == lineage(job, "produce")
    assert Counter({(step, "produce"): 6 for step in (1, 2)}) == lineage(job, "consume")
    assert 12 == len({span["parent_span_id"] for span in job.named("consume")})


def test_a_tree_of_actors_has_the_right_parents(tmp_path: Path, address: str) -> None:
    """
    Driver, supervisor, its workers and their tasks: each below the one that asked for it.
    """
    job = run_program(tmp_path, "tests.integration.ray_supervisor", RAY_ADDRESS=address)

    assert 0 == job.code, job.errors
    assert Counter({(step, "round"): 1 for step in (1, 2)}) == lineage(job, "share out")
    assert Counter({(step, "share out"): 2 for step in (1, 2)}) == lineage(job, "work")
    assert Counter({(step, "work"): 6 for step in (1, 2)}) == lineage(job, "square")
