"""
What a program put into its environment, its recordings and its errors stays in the recordings it was put into.
"""

import gzip
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar import data
from stepscope_sidecar.serve import application
from stepscope_sidecar.timeline import merge
from tests import trace_format
from tests.integration.jobs import Job, command_line
from tests.integration.programs import ROOT, run_program, settle
from tests.unit.sidecar.calling import Caller

API_KEY = "sk-planted-0123456789"
PROMPT = "please-forget-this-planted-prompt"
HOME = "/home/planted-person"

PATHS = ("/", "/metrics", "/api/status", "/api/windows", "/api/nodes", "/api/spans", "/api/steps")

JAEGER = (
    "/api/services",
    "/api/services/trainer/operations",
    "/api/operations?service=trainer",
    "/api/traces?service=trainer&limit=1000",
    "/api/traces?service=stepscope-sidecar&limit=1000",
    "/api/dependencies?endTs=4102444800000&lookback=4102444800000",
    "/api/v3/services",
    "/api/v3/operations",
    "/api/v3/trace-summaries",
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    A real run whose second step was recorded with operators.
    """
    job = run_program(
        tmp_path_factory.mktemp("secretive"),
        "tests.integration.secretive_loop",
        STEPSCOPE_STEPS="2",
        STEPSCOPE_LEVEL="ops",
        PLANTED_API_KEY=API_KEY,
        PLANTED_PROMPT=PROMPT,
        HOME=HOME,
    )
    assert 0 == job.code, job.errors
    settle(job)
    return job


def planted(job: Job) -> list[str]:
    """
    What may be nowhere: the secrets, and where on this machine the run and the program lie.
    """
    return [API_KEY, PROMPT, HOME, str(job.directory), str(ROOT)]


def found_in(text: str, job: Job) -> list[str]:
    """
    What of it is in ``text``.
    """
    return [secret for secret in planted(job) if secret in text]


def of_store(path: Path) -> Iterator[str]:
    """
    The store's tables as text, and its bytes, in which deleted rows may linger.
    """
    for part in path.parent.glob(f"{path.name}*"):
        yield part.read_bytes().decode(errors="replace")
    connection = sqlite3.connect(path)
    try:
        yield "\n".join(connection.iterdump())
    finally:
        connection.close()


def of_tables(path: Path, target: Path) -> Mapping[str, str]:
    """
    The tables, and what is read of them from Parquet.
    """
    import pyarrow.parquet as pq

    with data.open(path) as run:
        tables = {name: str(getattr(run, name).to_pylist()) for name in run.to_parquet(target)}
    return {**tables, **{file.name: str(pq.read_table(file).to_pylist()) for file in target.iterdir()}}


def without_artifacts(rows: list[dict[str, Any]]) -> str:
    """
    Windows as JSON without where their recordings lie, which is for a person on this machine.
    """
    return json.dumps([{key: value for key, value in row.items() if key != "artifact"} for row in rows])


def test_the_secrets_are_in_the_recording(job: Job) -> None:
    """
    Else the other tests would show nothing.
    """
    (window,) = [row for row in job.windows if row["artifact"]]
    text = gzip.decompress(Path(window["artifact"]).read_bytes()).decode()

    assert ("ready", set()) == (window["state"], {API_KEY, PROMPT, HOME} - set(found_in(text, job)))


def test_nothing_of_them_is_in_spans_and_store(job: Job) -> None:
    """
    Neither from the environment nor from an exception that passed through a span.
    """
    assert {"rollout.generate", "profile.capture"} <= {span["name"] for span in job.spans}
    assert [] == found_in(json.dumps(job.spans), job)
    for text in of_store(job.store):
        assert [] == found_in(text, job)


def test_nothing_of_them_is_on_pages_and_in_answers(job: Job) -> None:
    """
    The page of the run, those of its windows and traces, the API, and all of Jaeger's.
    """
    caller = Caller(application(job.store, token=""), host="127.0.0.1")
    windows = caller.get("/api/windows").json()
    paths = [*PATHS, *JAEGER]
    paths += [f"/windows/{row['window']}" for row in windows]
    paths += [f"{kind}/traces/{row['trace_id']}" for row in windows if row["trace_id"] for kind in ("", "/api")]

    for path in paths:
        answer = caller.get(path)
        text = without_artifacts(answer.json()) if path == "/api/windows" else answer.text
        assert (200, []) == (answer.status_code, found_in(text, job)), path


def test_nothing_of_them_is_in_tables_and_exports(job: Job, tmp_path: Path) -> None:
    """
    Every table and every file of Parquet, the samples included.
    """
    tables = of_tables(job.store, tmp_path / "out")

    assert {"spans", "windows", "samples", "kernels"} <= tables.keys()
    for name, text in tables.items():
        assert [] == found_in(text, job), name


def test_of_them_a_merged_timeline_has_what_the_program_wrote_into_a_name(job: Job, tmp_path: Path) -> None:
    """
    The prompt in the annotation of its own, whose home is not; nothing of what was put around the events.
    """
    merge(job.store, 2, tmp_path / "step.json")
    timeline = trace_format.read(tmp_path / "step.json")
    named = [one for one in timeline.slices if PROMPT in one.name]

    assert [PROMPT] == found_in((tmp_path / "step.json").read_text(), job)
    assert [("user_annotation", f"{PROMPT} ~/train.py")] == [(one.category, one.name) for one in named]
    assert (tmp_path / "step.json").read_text().count(PROMPT) == len(named)


@pytest.mark.parametrize("command", ["windows", "spans", "status", "show"])
def test_nothing_of_them_is_on_the_terminal(job: Job, command: str) -> None:
    """
    But where the run and its recordings lie, which a person on this machine asks for.
    """
    text = command_line(job.directory, command).replace(str(job.directory), "")

    assert [] == found_in(text, job)
