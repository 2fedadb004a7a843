"""
The reference job with a real vLLM in its rollouter.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.jobs import Job, eventually, running
from tests.vllm import tiny

DEADLINE = 600.0
"""Seconds; vLLM alone takes most of a minute to start on two free cores, and three on busy ones."""

pytestmark = pytest.mark.timeout(DEADLINE + 100)

SAMPLES = 4


def servers() -> set[int]:
    """
    The processes of vLLM on this machine.
    """
    return {process.pid for process in psutil.process_iter(["name"]) if "VLLM" in (process.info["name"] or "")}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    Four steps, the second and third recorded. In the last there may be nothing left to generate.
    """
    directory = tmp_path_factory.mktemp("runs")
    path = tiny.build(tmp_path_factory.mktemp("model"), warm_up=60)
    before = servers()
    with running(
        directory,
        *("--engine", "vllm", "--model", str(path), "--rollouters", "1", "--steps", "4"),
        *("--prompts", "8", "--samples", str(SAMPLES), "--slots", "4", "--mini-batches-per-step", "2"),
        *("--validate-every", "2"),
        STEPSCOPE_STEPS="2-3",
        STEPSCOPE_TOOLS="trainer=torch,rollouter=vllm",
    ) as started:
        started.process.wait(DEADLINE)
        done = started.end()
    assert 0 == done.code, done.errors[-3000:]
    eventually(lambda: not servers() - before)
    return done


def test_both_roles_record_both_steps(job: Job) -> None:
    """
    The trainer by its own profiler, the replica by its engine's.
    """
    found = Counter((window["role"], window["tool"], window["step"], window["state"]) for window in job.windows)

    assert {
        ("trainer", "torch", 2, "ready"): 1,
        ("trainer", "torch", 3, "ready"): 1,
        ("rollouter", "vllm", 2, "ready"): 1,
        ("rollouter", "vllm", 3, "ready"): 1,
    } == found, job.windows


def test_a_recording_of_the_engine_holds_batches_of_its_step_alone(job: Job) -> None:
    """
    All of the engine's batches in it ran between opening and closing, under the one version.
    """
    for window in job.windows:
        if window["tool"] != "vllm":
            continue
        trace = json.loads(gzip.decompress(Path(window["artifact"]).read_bytes()))
        base = trace["baseTimeNanoseconds"]
        begun = [
            base + int(event["ts"] * 1000)
            for event in trace["traceEvents"]
            if str(event.get("name", "")).startswith("execute_")
        ]

        assert window["window"] == trace["stepscope.window"]
        assert window["trace_id"] == trace["stepscope.trace_id"]
        assert window["version_at_close"] == window["param_version"] == window["step"] - 1
        assert begun
        assert window["opened_unix_ns"] <= min(begun)
        assert max(begun) <= window["closed_unix_ns"]


def test_spans_of_requests_are_below_ours_and_know_their_step(job: Job) -> None:
    """
    vLLM knows nothing of steps: they get them on their way through the sidecar.
    """
    generated = {span["span_id"]: span for span in job.named("rollout.generate")}
    requests = job.named("llm_request")
    below = Counter(span["parent_span_id"] for span in requests)

    assert set(generated) == set(below)
    assert {SAMPLES} == set(below.values())
    for span in requests:
        parent, found = generated[span["parent_span_id"]], span["attributes"]
        assert parent["trace_id"] == span["trace_id"]
        assert [parent["attributes"][key] for key in KEYS] == [found[key] for key in KEYS]


KEYS = ("param_version", "rl.step", "rl.role", "rl.rank")


def test_completions_say_their_versions(job: Job) -> None:
    """
    On the span, one text for each; and the sample table's versions are theirs.
    """
    texts = [span["attributes"]["rl.completion.versions"] for span in job.named("rollout.generate")]

    assert all(SAMPLES == len(each) for each in texts)
    assert all(text.startswith("v") and "[0:" in text for each in texts for text in each)


def test_the_replica_has_the_trainers_weights_after_every_update(job: Job) -> None:
    """
    Also after the first load, which the first row answers for.
    """
    rows: list[dict[str, Any]] = [row for row in job.rows if "log_prob_gap" in row]

    assert [1, 2, 3, 4] == [row["step"] for row in rows]
    assert all(row["log_prob_gap"] < 1e-3 for row in rows)
