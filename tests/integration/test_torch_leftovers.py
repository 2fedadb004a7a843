"""
What an earlier session of ``torch.profiler`` left, ours or theirs, ends neither the process nor recording.

Each scenario runs in an interpreter of its own; the exit code is what is asserted.
"""

import pytest

from tests.integration.interpreters import in_interpreter

pytest.importorskip("torch")


@pytest.mark.parametrize("level", ["spans", "ops"])
@pytest.mark.parametrize("scenario", ["forked_child_registers", "warmed_inside_and_dropped"])
def test_recording_goes_on(scenario: str, level: str) -> None:
    """
    The program comes to its end, with its own assertions holding.
    """
    code, errors = in_interpreter("torch_leftovers", scenario, level)

    assert 0 == code, errors[-3000:]
