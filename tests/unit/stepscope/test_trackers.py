"""
The run of an experiment tracker is known from the environment or from the tracker's own module.
"""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import stepscope
from stepscope import trackers
from stepscope.testing import capture_spans

WANDB = SimpleNamespace(run=SimpleNamespace(id="w1"))
MLFLOW = SimpleNamespace(active_run=lambda: SimpleNamespace(info=SimpleNamespace(run_id="m1")))
TRACKIO = SimpleNamespace(current_run=SimpleNamespace(get=lambda: SimpleNamespace(id="t1", name="brave")))
OLD_TRACKIO = SimpleNamespace(current_run=SimpleNamespace(get=lambda: SimpleNamespace(name="brave")))

IDLE = {
    "wandb": SimpleNamespace(run=None),
    "mlflow.tracking.fluent": SimpleNamespace(active_run=lambda: None),
    "trackio.context_vars": SimpleNamespace(current_run=SimpleNamespace(get=lambda: None)),
}
"""Imported, without an active run."""


@pytest.mark.parametrize(
    ("expected", "environment", "modules"),
    [
        ({}, {}, {}),
        ({"rl.tracker.wandb": "w0"}, {"WANDB_RUN_ID": " w0 "}, {}),
        ({"rl.tracker.mlflow": "m0"}, {"MLFLOW_RUN_ID": "m0"}, {}),
        ({"rl.tracker.wandb": "w1"}, {}, {"wandb": WANDB}),
        ({"rl.tracker.wandb": "w0"}, {"WANDB_RUN_ID": "w0"}, {"wandb": WANDB}),
        ({"rl.tracker.mlflow": "m1"}, {"WANDB_RUN_ID": ""}, {"mlflow.tracking.fluent": MLFLOW}),
        ({"rl.tracker.trackio": "t1"}, {}, {"trackio.context_vars": TRACKIO}),
        ({"rl.tracker.trackio": "brave"}, {}, {"trackio.context_vars": OLD_TRACKIO}),
        ({}, {}, IDLE),
        ({}, {}, {"wandb": SimpleNamespace(), "mlflow.tracking.fluent": 3, "trackio.context_vars": None}),
        ({}, {}, {"wandb": SimpleNamespace(run=SimpleNamespace(id=7))}),
        ({"rl.tracker.wandb": "x" * 200}, {"WANDB_RUN_ID": "x" * 1000}, {}),
    ],
)
def test_a_run_is_known_where_the_tracker_says_it(
    expected: dict[str, str], environment: dict[str, str], modules: dict[str, Any]
) -> None:
    """
    The environment first, then the active run; whatever else a module holds is no run.
    """
    assert expected == trackers.runs(environment, modules)


def test_every_span_of_the_process_leads_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    As a resource attribute.
    """
    monkeypatch.setenv("WANDB_RUN_ID", "w0")
    monkeypatch.setitem(sys.modules, "trackio.context_vars", TRACKIO)
    with capture_spans() as captured, stepscope.span("work"):
        pass

    [span] = captured.named("work")
    assert ("w0", "t1") == (span.resource["rl.tracker.wandb"], span.resource["rl.tracker.trackio"])


def test_no_tracker_is_imported() -> None:
    """
    Neither by us nor on our behalf.
    """
    program = (
        "import sys, stepscope, stepscope.testing\n"
        "with stepscope.testing.capture_spans(), stepscope.span('work'): pass\n"
        "print(sorted({'wandb', 'mlflow', 'trackio'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True, timeout=60, check=True
    )

    assert "[]" == done.stdout.strip()
