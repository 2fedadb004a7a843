"""
The table of what of verl is touched, against released versions. Their wheels are read, not installed.
"""

import os
import zipfile
from pathlib import Path

import pytest

from stepscope.integrations.verl.probe import look
from stepscope.integrations.verl.targets import TARGETS
from tests.verl.running import program

WHEELS = os.environ.get("STEPSCOPE_TEST_VERL_WHEELS", "")
"""A folder with the wheels of the versions below; ``make test-verl`` brings them."""

LATEST = "0.9.1"

NO_MODULE = "there is no such module"

KNOWN = {
    "0.9.1": set[tuple[str, str]](),
    "0.9.0": set[tuple[str, str]](),
    "0.8.0": {
        (NO_MODULE, "verl.trainer.ppo.v1.trainer_base"),
        (NO_MODULE, "verl.trainer.ppo.v1.trainer_separate_async"),
        (NO_MODULE, "verl.trainer.ppo.v1.replay_buffer"),
        ("there is no _vllm_request_id", "verl.workers.rollout.llm_server"),
    },
}
"""Of each version, what it does not have, and where; whatever else the table names is there."""

needs_wheels = pytest.mark.skipif(not WHEELS, reason="STEPSCOPE_TEST_VERL_WHEELS names no folder")


def unpack(version: str, folder: Path) -> Path:
    """
    The sources of verl ``version``, below ``folder``.
    """
    (wheel,) = Path(WHEELS).glob(f"verl-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])
    return folder


@needs_wheels
@pytest.mark.parametrize("version", sorted(KNOWN))
def test_a_released_version_has_what_the_table_names(tmp_path: Path, version: str) -> None:
    """
    Every function, with the parameters that its wrapper reads; an older one lacks what is known.
    """
    lacking = [finding for finding in look(unpack(version, tmp_path)) if finding.why]

    assert KNOWN[version] == {(finding.why, finding.module) for finding in lacking}


@needs_wheels
def test_of_an_unknown_version_it_uses_what_it_finds(tmp_path: Path) -> None:
    """
    A class renamed, a method gone, a parameter renamed: each is named, and the rest is used.
    """
    root = unpack(LATEST, tmp_path)
    sync = root / "verl/checkpoint_engine/base.py"
    sync.write_text(sync.read_text().replace("global_steps: int = None", "version: int = None"))
    base = root / "verl/trainer/ppo/v1/trainer_base.py"
    base.write_text(base.read_text().replace("def _validate(", "def _evaluate("))
    server = root / "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
    server.write_text(server.read_text().replace("class vLLMHttpServer", "class VllmServer"))

    lacking = {finding.where: finding.why for finding in look(root) if finding.why}
    of_server = [target.where for target in TARGETS if target.where.startswith("vLLMHttpServer.")]

    assert {
        "CheckpointEngineManager.update_weights": "update_weights does not take global_steps",
        "PPOTrainer._validate": "there is no _validate",
        **dict.fromkeys(of_server, "there is no vLLMHttpServer"),
    } == lacking


def test_the_installed_version_is_wrapped_as_the_table_says(tmp_path: Path) -> None:
    """
    Reading the sources and importing the modules come to the same.
    """
    done = program(tmp_path, "-c", IMPORTED, STEPSCOPE_DIR=str(tmp_path))

    assert 0 == done.returncode, done.stderr[-4000:]
    assert "as the table says, not found: {}" == done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("settings", "activity"),
    [
        ({"STEPSCOPE_RUN": "r"}, "active: every process that imports verl"),
        ({}, "inactive: no STEPSCOPE_ variable is set"),
        (
            {"STEPSCOPE_RUN": "r", "VERL_USE_EXTERNAL_PLUGINS": "none"},
            "inactive: VERL_USE_EXTERNAL_PLUGINS=none keeps verl from loading it",
        ),
    ],
)
def test_check_says_what_of_the_installed_version_is_found(
    tmp_path: Path, settings: dict[str, str], activity: str
) -> None:
    """
    In one line; in another where that holds, or why nowhere.
    """
    done = program(tmp_path, "-m", "stepscope_sidecar.cli", "check", "--verl", **settings)
    rows = {f"{target.module}:{target.where}" for target in TARGETS if not target.override}

    assert 0 == done.returncode, done.stderr[-4000:]
    first, second = done.stdout.splitlines()
    assert f"verl {LATEST}: " == first[: len(f"verl {LATEST}: ")]
    assert first.endswith(" places found, 0 not")
    assert len(rows) <= int(first.split()[2])
    assert activity == second


IMPORTED = """
import importlib
from tests.verl import engine
engine.install()
from stepscope.integrations.verl import patching
from stepscope.integrations.verl.targets import by_module
OTHER_ENGINES = ("sglang", "trtllm")
for module in by_module():
    if not any(engine in module for engine in OTHER_ENGINES):
        importlib.import_module(module)
wanted = [target for module, rows in by_module().items() for target in rows
          if not any(engine in module for engine in OTHER_ENGINES)]
assert len(wanted) == len(patching.found)
print(f"as the table says, not found: {patching.missing()}")
"""
