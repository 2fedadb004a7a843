"""
Folders that real Ascend devices have left, of 2023 to 2025, against facts that were computed another way.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stepscope_sidecar.artifacts import ascend
from stepscope_sidecar.artifacts.ascend_tasks import Tasks, from_database, from_table
from tests.unit.sidecar import ascends, traces

DATA = traces.DATA / "ascend"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared recordings are not beside this repository")

WITH_DATABASE = ["db_level0/rank0_ascend_pt", "db_level1/rank0_ascend_pt", "db_level1/rank1_ascend_pt"]
WITH_TABLE = [
    "text_level0/rank0_ascend_pt",
    "text_level1/rank0_ascend_pt",
    "text_level1/rank1_ascend_pt",
    "st_level2_4rank_torch_npu2.7.1_cann8.3/rank_0_ascend_pt",
    "legacy_2023_gpt3/test_rank_0",
    "legacy_2023_gpt3/test_rank_1",
]
COLLECTIVES = ("HCCL", "COMMUNICATION")


def _facts(folder: str, name: str) -> dict[str, Any]:
    facts = json.loads((traces.DATA / "facts.json").read_text())
    [found] = [fact for path, fact in facts.items() if path.startswith(f"ascend/{folder}/") and Path(path).match(name)]
    return dict(found)


@pytest.mark.parametrize("folder", WITH_DATABASE)
def test_databases_say_what_the_facts_say(folder: str) -> None:
    """
    Tasks, kernels, their time, device and rank are exact; every launch has left a task.
    """
    fact = _facts(folder, "ascend_pytorch_profiler_*.db")

    found = ascend.inspect(DATA / folder)

    tasks, compute = fact["tasks"], fact["compute_tasks"]
    assert [] == found.broken
    assert (tasks["count"], tasks["first_start_ns"], tasks["last_end_ns"]) == (
        found.tasks.count,
        found.tasks.first_unix_ns,
        found.tasks.last_unix_ns,
    )
    assert (compute["count"], compute["sum_ns"]) == (found.tasks.kernels, found.tasks.kernel_ns)
    assert (191, 0) == (len(found.tasks.launches), found.tasks.launches.count(0))
    assert {device for _, device in fact["RANK_DEVICE_MAP"]} == found.tasks.devices


@pytest.mark.parametrize("folder", WITH_TABLE)
def test_tables_say_what_the_facts_say(folder: str) -> None:
    """
    Rows are counted, collectives apart, and times add up, whatever a release's columns and number formats are.
    """
    fact = _facts(folder, "kernel_details.csv")

    found = ascend.inspect(DATA / folder)

    cores = fact["by_Accelerator_Core"]
    kernels = [(count, Decimal(time)) for core, (count, time) in cores.items() if core not in COLLECTIVES]
    assert [] == found.broken
    assert (fact["rows"], sum(count for count, _ in kernels)) == (found.tasks.count, found.tasks.kernels)
    # The oldest release has more decimals than there are nanoseconds.
    total = sum((time for _, time in kernels), Decimal())
    assert abs(total * 1000 - found.tasks.kernel_ns) <= found.tasks.kernels
    assert Decimal(fact["first_start"]) * 1000 == found.tasks.first_unix_ns


@pytest.mark.parametrize("folder", [*WITH_DATABASE, *WITH_TABLE])
def test_sessions_began_when_the_facts_say(folder: str) -> None:
    """
    The session's start is exact to the nanosecond, and before the first task; a folder of 2023 does not have one.
    """
    fact = _facts(folder, "profiler_info_*.json")

    found = ascend.inspect(DATA / folder)

    begin, end = found.session_unix_ns
    assert (fact.get("start_epoch_ns") or 0) == begin
    assert not begin or begin < found.tasks.first_unix_ns <= found.tasks.last_unix_ns < end


def test_what_msprof_has_left() -> None:
    """
    Its database and its table, which somebody has edited, are read as torch_npu's are.
    """
    compute = _facts("msprof_misc", "msprof_0.db")["compute_tasks"]
    database, table = Tasks(), Tasks()

    from_database(DATA / "msprof_misc" / "msprof_0.db", database, wanted=frozenset())
    from_table(DATA / "msprof_misc" / "op_summary_1.csv", table)

    assert (24, compute["count"], compute["sum_ns"]) == (database.count, database.kernels, database.kernel_ns)
    assert (21, 17) == (table.count, table.kernels)


@pytest.mark.parametrize(("first", "count", "reason"), [(0, 40, "_head"), (151, 40, "_tail"), (80, 30, "")])
def test_launches_whose_tasks_were_taken_out_are_missed(tmp_path: Path, first: int, count: int, reason: str) -> None:
    """
    Of a real recording the tasks of some launches are taken out: the share that is reported is the share taken out.
    """
    path = tmp_path / ascends.NAME
    shutil.copytree(DATA / WITH_DATABASE[0], path)
    [file] = path.glob("*/ascend_pytorch_profiler_0.db")
    with closing(sqlite3.connect(file)) as connection, connection:
        launches = connection.execute("SELECT connectionId FROM CANN_API WHERE type = 10000 ORDER BY startNs")
        for (launch,) in launches.fetchall()[first : first + count]:
            connection.execute("DELETE FROM TASK WHERE connectionId = ?", (launch,))
    begin, end = ascend.inspect(path).session_unix_ns

    made = ascend.make(ascends.job(tmp_path, opened_unix_ns=begin, closed_unix_ns=end))

    assert (f"kernels_missing{reason}", count / 191) == (made.verdict.reason, made.verdict.share)


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """
    Files that a viewer has opened before are left as they are, and nothing is put beside them.
    """
    path = tmp_path / ascends.NAME
    shutil.copytree(DATA / WITH_DATABASE[0], path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}

    ascend.inspect(path)

    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
