"""
What ``torch.profiler`` records at each level, what it falls back to, and what it keeps to itself.

Each scenario runs in an interpreter of its own; its own assertions decide the exit code.
"""

import pytest

from tests.integration.interpreters import in_interpreter

pytest.importorskip("torch")

LEVELS = ("spans", "ops", "full")


@pytest.mark.parametrize(
    ("scenario", "level"),
    [
        *((scenario, level) for scenario in ("content", "export", "trace_only") for level in LEVELS),
        ("without_trace_only", "ops"),
        ("without_scopes", "spans"),
        ("denied", "device"),
        ("device", "device"),
    ],
)
def test_a_level_keeps_its_word(scenario: str, level: str) -> None:
    """
    The scenario's own assertions hold.
    """
    code, errors = in_interpreter("torch_levels", scenario, level)

    assert 0 == code, errors[-2000:]


def test_a_window_warns_of_nothing_and_others_still_do() -> None:
    """
    What torch warns of at the end of our windows, because it takes it for a mistake, is not seen; anybody else's is.
    """
    code, errors = in_interpreter("torch_levels", "quiet", "ops")
    ours, _, theirs = errors.partition("now\n")

    assert 0 == code, errors[-2000:]
    assert "Toggling" not in ours
    assert 1 == theirs.count("Toggling")
