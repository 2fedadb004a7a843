"""
The reference loop as such, on Ray: it learns, it is reproducible, it resumes, and it ends in order.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.jobs import JOB_DEADLINE, Job, environment, run_job, running

pytestmark = [pytest.mark.ray, pytest.mark.slow]

BARE = ("--no-stepscope",)
SMALL = ("--warmup-steps", "5", "--prompts", "16", "--mini-batches-per-step", "2")
SYNC = (*BARE, *SMALL, "--sync", "--steps", "4", "--seed", "3", "--trainer-ranks", "2")
AGREEMENT = 1e-4
"""Log-probs of the same float32 weights; a load that went wrong is off by 0.1 and more."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    The demo's configuration, without stepscope.
    """
    return run_job(tmp_path_factory.mktemp("demo"), *BARE, alone=True)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    Where the synchronous run keeps its checkpoints.
    """
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def synchronous(checkpoints: Path) -> Job:
    """
    A synchronous run over two trainer ranks.
    """
    return run_job(checkpoints, *SYNC, "--checkpoint-every", "2", "--checkpoints", str(checkpoints), alone=True)


def test_it_learns(demo: Job) -> None:
    """
    The reward of the last quarter is at least 0.15 above that of the first.
    """
    rewards = [row["reward"] for row in demo.rows if "reward" in row]

    assert 0 == demo.code, demo.errors
    assert 12 == len(rewards)
    assert sum(rewards[-3:]) / 3 - sum(rewards[:3]) / 3 >= 0.15


def test_rows_tell_what_happened(demo: Job) -> None:
    """
    Every step trained on all of its samples, none staler than allowed; rollouters agree with the trainer.
    """
    rows = [row for row in demo.rows if "step" in row]

    assert list(range(1, 13)) == [row["step"] for row in rows]
    assert list(range(12)) == [row["param_version"] for row in rows]
    assert {1024} == {row["samples"] for row in rows}
    assert all(0 <= row["staleness"] <= 1 for row in rows)
    assert max(row["log_prob_gap"] for row in rows) < AGREEMENT
    assert [4, 8, 12] == [row["step"] for row in rows if row["validation"] is not None]
    assert {2} == {row["replicas"] for row in rows}
    assert {"summary": {"version": 12, "steps": 12, "given_up": {}}} == demo.rows[-1]


def test_resuming_goes_on_bit_for_bit(synchronous: Job, checkpoints: Path) -> None:
    """
    With --sync a run resumed at version 2 has the rewards that the first one had from step 3 on.
    """
    resumed = run_job(checkpoints, *SYNC, "--resume", "2", "--checkpoints", str(checkpoints), alone=True)
    expected = [(row["step"], row["reward"]) for row in synchronous.rows if row.get("step", 0) > 2]

    assert 0 == synchronous.code, synchronous.errors
    assert 0 == resumed.code, resumed.errors
    assert expected == [(row["step"], row["reward"]) for row in resumed.rows if "step" in row]
    assert all(row["log_prob_gap"] < AGREEMENT for row in resumed.rows if "step" in row)
    assert [2, 4] == [row["step"] for row in synchronous.rows if row.get("checkpoint")]


def test_a_deaf_replica_is_given_up_and_the_run_goes_on(tmp_path: Path) -> None:
    """
    It misses the acknowledgement deadline, is named, and the other one generates for it.
    """
    job = run_job(
        tmp_path, *BARE, *SMALL, "--steps", "3", "--test-deaf-replica", "1", "--ack-deadline", "20", alone=True
    )

    assert 0 == job.code, job.errors
    assert {"1": "no acknowledgement within 20 s"} == job.rows[-1]["summary"]["given_up"]
    assert [1, 1, 1] == [row["replicas"] for row in job.rows if "step" in row]


def test_an_exception_in_the_loop_ends_the_job(tmp_path: Path) -> None:
    """
    With exit code 1 and its own words, on every rank, and soon.
    """
    job = run_job(tmp_path, *BARE, *SMALL, "--trainer-ranks", "2", "--test-fail-at-step", "2", alone=True)

    assert 1 == job.code
    assert "told to fail" in job.errors
    assert [1] == [row["step"] for row in job.rows if "step" in row]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_job(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """
    In order, with the exit code of a program that a signal ended.
    """
    with running(tmp_path, *BARE, *SMALL, "--steps", "10000", alone=True) as job:
        job.wait_for_step(2)
        job.process.send_signal(number)
        done = job.end()

    assert code == done.code, done.errors
    assert f"stopped by signal {int(number)}" in done.errors


def test_wrong_options_are_refused_before_anything_starts(tmp_path: Path) -> None:
    """
    With exit code 2, one line, and no stack.
    """
    for arguments in (("--prompts", "10"), ("--resume", "9", "--checkpoints", str(tmp_path)), ("--model", "gpt2")):
        job = run_job(tmp_path, *BARE, *arguments, alone=True)

        assert 2 == job.code
        assert job.errors.startswith("error: --")
        assert 1 == len(job.errors.splitlines())


PROFILED = """
import asyncio, json, sys
from stepscope_trainer import job
from stepscope_trainer.config import Config

managers, answers = [], []

async def twice(call):
    return await asyncio.gather(call(), call())

def on_row(row):
    if answers:
        return
    first, again = asyncio.run(twice(managers[0].start_profiling))
    stopped, _ = asyncio.run(twice(managers[0].stop_profiling))
    # Who loses its core asks at an update, or in two steps: then the next step has to show it.
    windows = [[answer["window"] for answer in answers] for answers in (first, again)]
    same = windows[0] == windows[1] and {answer["state"] for answer in first} == {"recording"}
    if same or row.step == 5:
        answers.extend([first, again, stopped])

# Steps of some seconds, so that both calls fall into the same one.
job.run(Config(steps=6, warmup_steps=5, prompts=256), on_row=on_row, on_ready=managers.append)
json.dump(answers, sys.stdout)
"""


def test_the_engine_manager_starts_and_stops_every_replica(tmp_path: Path) -> None:
    """
    Each replica answers, and asking twice opens no second window.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROFILED],
        env=environment(tmp_path, STEPSCOPE_RANKS="all"),
        capture_output=True,
        text=True,
        timeout=JOB_DEADLINE,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    first, again, stopped = json.loads(done.stdout)

    assert [0, 1] == [answer["replica"] for answer in first]
    assert {"recording"} == {answer["state"] for answer in first}
    assert [answer["window"] for answer in first] == [answer["window"] for answer in again]
    assert not [answer for answer in stopped if answer["state"] == "recording"]
