"""
Every recipe of the page on a run as data, run over a real run, to which a recording of a GPU is added.
"""

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from stepscope_sidecar import data
from stepscope_sidecar.rows import SampleRow
from stepscope_sidecar.store import Store, add_samples, write
from tests.integration.jobs import Job, command_line
from tests.integration.programs import ROOT
from tests.unit.sidecar.recorded import facts, ns
from tests.unit.sidecar.stored import WAIT, window
from tests.unit.sidecar.traces import DATA

PAGE = (ROOT / "docs" / "en" / "run-as-data.md").read_text(encoding="utf-8")

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

RECIPES: list[str] = [body for language, body in FENCE.findall(PAGE) if language == "sql"]

RECORDING = "kineto/tracelens/h100_bert_small_torch2.6.json.gz"


@pytest.fixture(scope="module")
def copied(finished: Job, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """
    The run, with samples, a denied window, a request that saw two versions and, where there is one, a GPU's recording.
    """
    job = Job(tmp_path_factory.mktemp("copied"), 0, "", "")
    shutil.copytree(finished.directory, job.directory, symlinks=True, dirs_exist_ok=True)
    attempt = job.store.parent.name
    rows = [window(9, "denied", window="w-9", reason="rank_not_selected")]
    if DATA.is_dir():
        for step in (2, 3):
            artifact = f"{attempt}/step-{step:06d}/recording.json.gz"
            (job.directory / artifact).parent.mkdir(exist_ok=True)
            shutil.copy(DATA / RECORDING, job.directory / artifact)
            rows.append(window(step, window=f"gpu-{step}", role="rollouter", artifact=artifact))
    store = Store.open(job.store, run="run", attempt=attempt.removeprefix("run-"))
    try:
        for row in rows:
            store.submit(partial(write, row=row)).result(WAIT)
        samples = [
            SampleRow(step=2, mini_batch=0, param_version=1, sample_id=f"s{n}", oldest_version=n) for n in (0, 1)
        ]
        store.submit(partial(add_samples, samples=samples)).result(WAIT)
    finally:
        store.close()
    return job


@pytest.fixture(scope="module")
def tables(copied: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    What ``stepscope export`` writes of it.
    """
    folder = tmp_path_factory.mktemp("tables")
    printed = command_line(copied.directory, "export", "--parquet", str(folder))
    assert ["spans", "windows", "samples", "kernels"] == re.findall(r"(\w+)\.parquet: \d+ rows", printed)
    return folder


@pytest.fixture
def database(tables: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    """
    DuckDB in the folder of the tables, alone: it loads nothing from anywhere.
    """
    monkeypatch.chdir(tables)
    with duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "1"}) as connection:
        yield connection


def answer(database: duckdb.DuckDBPyConnection, recipe: str) -> list[dict[str, Any]]:
    """
    What a recipe finds.
    """
    found = database.execute(recipe)
    assert found.description is not None
    columns = [column[0] for column in found.description]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def recipe(word: str) -> str:
    """
    The one recipe with ``word`` in it.
    """
    (found,) = [text for text in RECIPES if word in text]
    return found


@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_every_recipe_runs(database: duckdb.DuckDBPyConnection, number: int) -> None:
    """
    As it is on the page.
    """
    answer(database, RECIPES[number])


def test_recipes_about_steps_and_windows_find_what_happened(database: duckdb.DuckDBPyConnection) -> None:
    """
    All steps of both roles, the windows that were recorded, the one that was denied, and the samples.
    """
    spent = answer(database, recipe("GROUP BY ALL\nORDER BY step"))
    slowest = answer(database, recipe("times_the_median"))
    cost = answer(database, recipe("stall_seconds"))
    missing = answer(database, recipe("state <> 'ready'"))
    stale = answer(database, recipe("'samples.parquet'"))

    assert {(step, "trainer", "productive") for step in (1, 2, 3)} <= {
        (row["step"], row["role"], row["bucket"]) for row in spent
    }
    assert ["rollouter", "trainer"] == [row["role"] for row in slowest]
    assert {"trainer": 1} == {row["role"]: row["windows"] for row in cost if row["role"] == "trainer"}
    assert [("denied", "rank_not_selected", 1, 9)] == [
        (row["state"], row["reason"], row["windows"], row["first"]) for row in missing
    ]
    assert [(2, 0, 1), (2, 1, 1)] == [(row["step"], row["staleness"], row["samples"]) for row in stale]


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared recordings are not beside this repository")
def test_recipes_about_kernels_find_what_is_known_of_the_recording(database: duckdb.DuckDBPyConnection) -> None:
    """
    The costliest kernel, its calls and its time; two recordings of the same do not differ; busy time is the union.
    """
    known = facts()[RECORDING]["kernels"]
    name, calls, total = known["top5_by_total_us"][0]
    costliest = answer(database, recipe("SELECT step, role, rank, name, count(*)"))
    same = answer(database, recipe("more_calls"))
    busy = answer(database, recipe("busy_milliseconds"))

    assert (name, calls, round(ns(total) / 1e6, 3)) == tuple(
        costliest[0][key] for key in ("name", "calls", "milliseconds")
    )
    assert {(2, 3, 1.0, 0)} == {tuple(row[key] for key in ("step", "against", "times", "more_calls")) for row in same}
    assert ["gpu-2", "gpu-3"] == [row["window"] for row in busy]
    assert all(0 < row["busy_milliseconds"] <= row["from_first_to_last"] for row in busy)


def test_the_example_in_python_runs(
    copied: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    As it is on the page, where ``runs/latest`` is the run.
    """
    (source,) = [body for language, body in FENCE.findall(PAGE) if language == "python"]
    (tmp_path / "runs").symlink_to(copied.directory)
    monkeypatch.chdir(tmp_path)
    exec(source, {})

    with data.open("runs") as run:
        assert f"run {run.attempt} {run.spans.num_rows}\n" == capsys.readouterr().out
    assert ["kernels", "samples", "spans", "windows"] == sorted(path.stem for path in (tmp_path / "tables").iterdir())
