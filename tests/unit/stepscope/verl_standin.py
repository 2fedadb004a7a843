"""
A package named ``verl`` for tests of the plugin's machinery: the layout of the real one, without its insides.

Stands in for the import alone; what the wrappers do in verl's own loops is tested against the real package in
``tests/verl``.
"""

import os
import subprocess
import sys
from pathlib import Path

import stepscope

ROOT = """
import importlib
importlib.import_module("stepscope.integrations.verl.plugin")
"""
"""As verl does at the end of its own import."""

CONSTANTS = """
def get_ppo_ray_runtime_env(config=None):
    return {"env_vars": {"A": "1"}}
"""

TRAINER = """
class PPOTrainer:
    def __init__(self, config):
        self.config = config

    def fit(self):
        return "fitted"

    @property
    def step(self):
        return "a property"

    def _update_actor(self, data):
        return data
"""

TRAINER_MODULE = "verl.trainer.ppo.v1.trainer_base"


def make(folder: Path, *, root: str = ROOT) -> Path:
    """
    Write the package below ``folder``, and say where to find it.
    """
    for package in ("verl", "verl/trainer", "verl/trainer/ppo", "verl/trainer/ppo/v1"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(root if package == "verl" else "")
    (folder / "verl/trainer/constants_ppo.py").write_text(CONSTANTS)
    (folder / "verl/trainer/ppo/v1/trainer_base.py").write_text(TRAINER)
    return folder


def run(folder: Path, program: str, **environment: str) -> list[str]:
    """
    Run ``program`` with the package that :func:`make` wrote; the lines that came out on either stream.
    """
    roots = [str(folder), str(Path(stepscope.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, roots)), **environment},
    )
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).splitlines()
