"""
The commands of the pages on Ray, verl and several nodes: each is run by a test, here or where what it needs is.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepscope import names, settings
from tests.unit.test_docs import ROOT, blocks, page

RUN = {
    "runbook.md": {"promtool check": "tests/unit/test_alerts.py"},
    "ray.md": {
        "class Store:": "tests/integration/documented.py",
        "stepscope spans": "tests/integration/test_ray_programs.py",
        "ray job submit": "tests/ray/test_job.py",
    },
    "verl.md": {
        "verl.trainer.main_ppo": "tests/verl/test_commands.py",
        "STEPSCOPE_TOOLS=": "tests/unit/test_docs_commands.py",
        "ray.init(": "tests/unit/test_docs_commands.py",
        "stepscope check --verl": "tests/unit/test_docs_commands.py",
    },
    "nodes.md": {
        "stepscope sidecar": "tests/integration/test_nodes.py",
        "OTEL_EXPORTER_OTLP_ENDPOINT=": "tests/integration/test_nodes.py",
        "STEPSCOPE_ARTIFACTS=": "tests/unit/test_docs_commands.py",
    },
    "deploy.md": {
        "deploy.grafana": "tests/unit/test_dashboards.py",
        "docker compose": "tests/unit/test_deploy_files.py",
        "kubectl apply": "tests/unit/test_kubernetes.py",
    },
}
"""By page: what tells a block from the others, and where it is run; containers' are validated there."""

SHARED = "/shared"
"""A folder that the pages take for given."""


def exported(block: str, folder: Path) -> dict[str, str]:
    """
    The settings that the ``export`` lines of ``block`` make, as a shell understands them.
    """
    (folder / "stepscope.token").write_text("secret\n", encoding="utf-8")
    lines = [line for line in block.replace(SHARED, str(folder)).splitlines() if line.startswith("export ")]
    bare = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["bash", "-euc", "\n".join([*lines, "env -0"])],
        env=bare,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = dict(item.split("=", 1) for item in done.stdout.split("\0") if "=" in item)
    return {name: value for name, value in found.items() if name.startswith(("STEPSCOPE_", "OTEL_"))}


@pytest.mark.parametrize("name", RUN)
def test_every_block_is_run_by_a_test(name: str) -> None:
    """
    A block that is new, or says something else, has to be run somewhere as well.
    """
    where = RUN[name]

    assert [[sign for sign in where if sign in block] for block in blocks(page("en", name))] == [[s] for s in where]
    for path in where.values():
        assert (ROOT / path).is_file()


@pytest.mark.parametrize(
    ("name", "block"), [(name, block) for name in RUN for block in blocks(page("en", name), "sh") if "export " in block]
)
def test_what_a_block_exports_is_accepted(tmp_path: Path, name: str, block: str) -> None:
    """
    With each process's own default for what it leaves open; an error names what is wrong.
    """
    found = exported(block, tmp_path)

    assert found
    settings.read(found)


def test_the_selection_that_is_exported_for_verl_is_the_one_meant(tmp_path: Path) -> None:
    """
    Roles and tools are told apart as the page says.
    """
    start, choice = (exported(block, tmp_path) for block in blocks(page("en", "verl.md"), "sh")[:2])

    assert {"STEPSCOPE_STEPS": "3,10-12"} == start
    assert {"STEPSCOPE_RANKS", "STEPSCOPE_TOOLS"} == choice.keys()
    assert {"trainer", "rollouter"} == set(settings.read(choice).tools)


def test_a_driver_of_verl_hands_the_run_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The page's lines, with a stand-in for Ray that notes what it is started with.
    """
    started: list[dict[str, Any]] = []
    ray: Any = ModuleType("ray")
    ray.init = lambda **options: started.append(options)
    monkeypatch.setitem(sys.modules, "ray", ray)
    for name in (names.RUN_ENV, names.ATTEMPT_ENV, names.DIR):
        monkeypatch.setenv(name, "")
    (source,) = blocks(page("en", "verl.md"), "python")

    exec(source, {})

    [options] = started
    assert os.environ[names.ATTEMPT_ENV] == options["runtime_env"]["env_vars"][names.ATTEMPT_ENV] != ""


def test_verl_is_checked_by_the_command_shown(tmp_path: Path) -> None:
    """
    It says what it found, also where no verl is.
    """
    (command,) = [block for block in blocks(page("en", "verl.md"), "sh") if "stepscope check" in block]
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert "verl" in done.stdout
