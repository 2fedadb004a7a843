"""
The known ways to kill a process with ``torch.profiler`` cannot be reached through stepscope.

Each scenario runs in an interpreter of its own; the exit code is what is asserted.
"""

import pytest

from tests.integration.interpreters import in_interpreter

pytest.importorskip("torch")

SCENARIOS = (
    "annotations_across_windows",
    "boundary_elsewhere",
    "closed_at_exit",
    "forked",
    "nested",
    "opener_gone",
    "span_across_windows",
    "spans_across_close",
    "stop_by_sidecar",
    "stop_while_training",
)

FOREIGN = (
    "foreign_before",
    "foreign_inside_other_finished",
    "foreign_inside_other_running",
    "foreign_inside_same_finished",
    "foreign_inside_same_running",
)

SCHEDULES = ("made_ready_inside", "scheduled_and_dropped", "scheduled_between", "scheduled_inside")

FULL = ("annotations_across_windows", "boundary_elsewhere", "spans_across_close", "stop_while_training")
"""At level ``full`` those that crashed before it kept to the opening thread."""


@pytest.mark.parametrize(
    ("module", "scenario", "level"),
    [
        *(("torch_scenarios", scenario, level) for scenario in SCENARIOS for level in ("spans", "ops")),
        *(pytest.param("torch_scenarios", scenario, "full", marks=pytest.mark.slow) for scenario in FULL),
        *(("torch_foreign", scenario, level) for scenario in FOREIGN for level in ("spans", "ops")),
        *(("torch_schedules", scenario, level) for scenario in SCHEDULES for level in ("spans", "ops")),
    ],
)
def test_survives(module: str, scenario: str, level: str) -> None:
    """
    The program comes to its end, with its own assertions holding and nothing from the operating system's side.
    """
    code, errors = in_interpreter(module, scenario, level)

    assert 0 == code, errors[-2000:]
    assert "Toggling" not in errors
    assert "USDT" not in errors
